"""Views under @idempotent_request, of every kind that Django has, and their URLs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
    JsonResponse,
    StreamingHttpResponse,
)
from django.http.response import HttpResponseBase
from django.template import engines
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from django_outbox.consumers.http import idempotent_request
from tests.testapp.models import LedgerEntry


def book(request: HttpRequest, **extra: Any) -> LedgerEntry:
    return LedgerEntry.objects.create(account="orders", reference=request.path, **extra)


def order(request: HttpRequest) -> HttpResponse:
    """Books, and answers with a number that shows which booking it was."""
    entry = book(request)
    response = JsonResponse({"order": entry.pk}, status=201)
    response["Location"] = f"/orders/{entry.pk}"
    response["X-Request-Cost"] = "3"
    response.set_cookie("tracking", "secret")
    return response


def with_status(request: HttpRequest, status: int) -> HttpResponse:
    book(request)
    return HttpResponse("as told", status=status)


def failing(request: HttpRequest) -> HttpResponse:
    book(request)
    raise Http404


def rolled_back(request: HttpRequest) -> HttpResponse:
    book(request)
    transaction.set_rollback(True)
    return HttpResponse("refused", status=400)


def streaming(request: HttpRequest) -> HttpResponseBase:
    book(request)
    return StreamingHttpResponse([b"a", b"b"])


def large(request: HttpRequest) -> HttpResponse:
    entry = book(request)
    response = HttpResponse("x" * 1000, status=201)
    response["Location"] = f"/orders/{entry.pk}"
    return response


def template(request: HttpRequest) -> HttpResponse:
    entry = book(request)
    text = engines["django"].from_string("order {{ order }}")
    return TemplateResponse(request, text, {"order": entry.pk})


def redirect(request: HttpRequest) -> HttpResponse:
    return HttpResponseRedirect(f"/orders/{book(request).pk}")


def binary(request: HttpRequest) -> HttpResponse:
    book(request)
    return HttpResponse(bytes(range(256)), content_type="application/octet-stream")


def echo_of_form(request: HttpRequest) -> HttpResponse:
    book(request)
    files = {name: file.read().decode() for name, file in request.FILES.items()}
    return JsonResponse({"name": request.POST.get("name"), "files": files})


def in_a_transaction(request: HttpRequest) -> HttpResponse:
    is_open = connections["default"].in_atomic_block
    return JsonResponse({"open": is_open, "order": book(request).pk})


async def async_order(request: HttpRequest) -> HttpResponse:
    entry = await LedgerEntry.objects.acreate(account="orders", reference=request.path)
    is_open = await sync_to_async(lambda: connections["default"].in_atomic_block)()
    return JsonResponse({"order": entry.pk, "open": is_open}, status=201)


async def async_failing(request: HttpRequest) -> HttpResponse:
    await LedgerEntry.objects.acreate(account="orders", reference=request.path)
    raise Http404


@method_decorator(csrf_exempt, name="dispatch")
@method_decorator(idempotent_request, name="dispatch")
class OrderView(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return order(request)


@method_decorator(csrf_exempt, name="dispatch")
@method_decorator(idempotent_request(required=True), name="dispatch")
class AsyncOrderView(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("read")

    async def post(self, request: HttpRequest) -> HttpResponse:
        return await async_order(request)


class OnTheMethod(View):
    @method_decorator(idempotent_request)
    def post(self, request: HttpRequest) -> HttpResponse:
        return order(request)


@csrf_exempt
@transaction.non_atomic_requests
def undecorated(request: HttpRequest) -> HttpResponse:
    return in_a_transaction(request)


def of(view: Any, **options: Any) -> Any:
    decorated = idempotent_request(**options)(view) if options else idempotent_request(view)
    return csrf_exempt(decorated)


urlpatterns = [
    path("order", of(order)),
    path("other-order", of(order)),
    path("required", of(order, required=True)),
    path("status/<int:status>", of(with_status)),
    path("failing", of(failing)),
    path("rolled-back", of(rolled_back)),
    path("streaming", of(streaming)),
    path("large", of(large, max_body=999)),
    path("without-body", of(order, store_body=False)),
    path("keeping", of(order, keep_headers=["x-request-cost"])),
    path("template", of(template)),
    path("redirect", of(redirect)),
    path("binary", of(binary)),
    path("form", of(echo_of_form)),
    path("short-lived", of(order, expires=timedelta(milliseconds=1))),
    path("in-a-transaction", of(in_a_transaction)),
    path("scoped", of(order, scope=lambda request: request.headers["X-Tenant"])),
    path("put-too", of(order, methods=("POST", "PUT"))),
    path("class", OrderView.as_view()),
    path("method", csrf_exempt(OnTheMethod.as_view())),
    path("async", of(async_order)),
    path("async-failing", of(async_failing)),
    path("async-class", AsyncOrderView.as_view()),
    path("csrf-protected", idempotent_request(order)),
]
