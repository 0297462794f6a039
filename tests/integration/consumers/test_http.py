from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connections
from django.http import HttpResponse
from django.test import AsyncClient, Client, RequestFactory, TestCase, override_settings
from django.views import View

from django_outbox.consumers.http import IdempotencyPolicy, idempotent_request
from django_outbox.consumers.responses import REPLAYED
from django_outbox.exceptions import (
    ImproperlyConfiguredOutbox,
    InTransaction,
    ResponseNotStorable,
)
from django_outbox.models import StoredResponse
from tests.conftest import EVERY_DATABASE
from tests.support.threads import Worker, wait_for
from tests.testapp.models import LedgerEntry

pytestmark = pytest.mark.urls("tests.support.idempotent_views")

KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"
every_database = pytest.mark.parametrize("database", EVERY_DATABASE, indirect=True)


def post(
    url: str,
    body: str = '{"item": 1}',
    *,
    key: str | None = KEY,
    client: Client | None = None,
    headers: dict[str, str] | None = None,
) -> Any:
    sent = dict(headers or {})
    if key is not None:
        sent["Idempotency-Key"] = key
    client = client or Client()
    return client.post(url, body, content_type="application/json", headers=sent)


def booked() -> int:
    return LedgerEntry.objects.count()


def assert_problem(response: Any, status: int, code: str) -> None:
    assert response.status_code == status
    assert response["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    assert problem["code"] == f"idempotency_key_{code}"
    assert KEY not in response.text


@pytest.fixture
def atomic_requests(database: Any) -> Iterator[None]:
    settings = connections["default"].settings_dict
    before = settings["ATOMIC_REQUESTS"]
    settings["ATOMIC_REQUESTS"] = True
    yield
    settings["ATOMIC_REQUESTS"] = before


@every_database
@pytest.mark.parametrize("url", ["/order", "/class", "/required", "/async", "/async-class"])
def test_the_same_request_again_gets_the_stored_response(database, url):
    first, second = post(url), post(url)
    assert first.status_code == second.status_code == 201
    assert first.content == second.content
    assert REPLAYED not in first
    assert second[REPLAYED] == "true"
    assert booked() == 1


@every_database
def test_what_describes_the_answer_is_replayed_and_cookies_are_not(database):
    first, second = post("/order"), post("/order")
    assert second["Content-Type"] == first["Content-Type"]
    assert second["Location"] == first["Location"]
    assert "X-Request-Cost" not in second
    assert first.cookies
    assert not second.cookies
    assert StoredResponse.objects.get().headers == {
        "Content-Type": "application/json",
        "Location": first["Location"],
    }


def test_other_headers_are_kept_by_choice(database):
    post("/keeping")
    assert post("/keeping")["X-Request-Cost"] == "3"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"keep_headers": ["Set-Cookie"]}, "cookies"),
        ({"keep_headers": "X-Order-Id"}, "a list of names"),
        ({"methods": "POST"}, "a list of methods"),
        ({"methods": ["post"]}, "in capitals"),
        ({"lease": timedelta(0)}, "longer than nothing"),
        ({"expires": timedelta(seconds=-1)}, "longer than nothing"),
    ],
)
def test_options_that_would_undo_the_promise_are_refused(options, why):
    with pytest.raises(ImproperlyConfiguredOutbox, match=why):
        IdempotencyPolicy(**options)


def test_a_class_is_told_how_it_is_decorated():
    with pytest.raises(ImproperlyConfiguredOutbox, match="method_decorator"):
        idempotent_request(View)


def test_an_encoded_body_comes_back_with_its_encoding(database):
    def view(request: Any) -> HttpResponse:
        return HttpResponse(
            gzip.compress(b"text"),
            headers={"Content-Encoding": "gzip", "Cache-Control": "no-store"},
        )

    decorated = idempotent_request(view)
    decorated(request())
    replayed = decorated(request())
    assert replayed["Content-Encoding"] == "gzip"
    assert replayed["Cache-Control"] == "no-store"
    assert gzip.decompress(replayed.content) == b"text"


def test_another_key_is_another_request(database):
    assert post("/order").json() != post("/order", key="another").json()
    assert booked() == 2


def test_without_a_key_nothing_is_stored_where_none_is_required(database):
    post("/order", key=None)
    assert post("/order", key=None).status_code == 201
    assert booked() == 2
    assert not StoredResponse.objects.exists()


@every_database
def test_a_missing_key_is_refused_where_one_is_required(database):
    for url in ("/required", "/async-class"):
        assert_problem(post(url, key=None), 400, "missing")
    assert booked() == 0


@pytest.mark.parametrize("key", ["", '"', "x" * 256, '"a","b"', "two words", "ü"])
def test_a_malformed_key_is_refused(database, key):
    request = RequestFactory().post("/order", headers={})
    request.META["HTTP_IDEMPOTENCY_KEY"] = key
    response = idempotent_request(lambda request: HttpResponse("never"))(request)
    assert response.status_code == 400
    assert b"idempotency_key_malformed" in response.content


def test_quoted_and_bare_are_the_same_key(database):
    post("/order", key=KEY)
    assert post("/order", key=f'"{KEY}"')[REPLAYED] == "true"


@every_database
def test_the_same_key_for_another_body_is_refused(database):
    post("/order", '{"item": 1}')
    assert_problem(post("/order", '{"item": 2}'), 422, "reused")
    assert booked() == 1


def test_the_same_key_with_another_query_or_content_type_is_refused(database):
    post("/order")
    assert_problem(post("/order?express=1"), 422, "reused")
    response = Client().post(
        "/order", '{"item": 1}', content_type="text/plain", headers={"Idempotency-Key": KEY}
    )
    assert_problem(response, 422, "reused")


def test_the_same_key_at_another_address_is_another_request(database):
    post("/order")
    assert post("/other-order").status_code == 201
    assert booked() == 2


@pytest.mark.parametrize("method", ["get", "head", "options", "put", "delete"])
def test_methods_that_may_be_repeated_anyway_pass_by(database, method):
    for _ in range(2):
        getattr(Client(), method)("/order", headers={"Idempotency-Key": KEY})
    assert booked() == 2
    assert not StoredResponse.objects.exists()


def test_other_methods_are_covered_by_choice(database):
    for _ in range(2):
        Client().put("/put-too", b"x", headers={"Idempotency-Key": KEY})
    assert booked() == 1


class Slow:
    """A view that books and then stands still until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.let_go = threading.Event()

    def __call__(self, request: Any) -> HttpResponse:
        LedgerEntry.objects.create(account="orders")
        self.entered.set()
        wait_for(self.let_go, "the view is let go")
        return HttpResponse("done", status=201)


def request(body: bytes = b"1") -> Any:
    return RequestFactory().post(
        "/x", body, content_type="text/plain", headers={"Idempotency-Key": KEY}
    )


@pytest.mark.parametrize("database", ["postgresql", "mysql"], indirect=True)
def test_while_a_request_is_in_progress_its_repetition_is_told_to_wait(database):
    slow = Slow()
    view = idempotent_request(slow)
    first = Worker(view, request())
    wait_for(slow.entered, "the view is entered")
    second = view(request())
    assert (second.status_code, second["Retry-After"]) == (409, "1")
    assert view(request(b"2")).status_code == 422
    slow.let_go.set()
    assert first.result().status_code == 201
    assert view(request())[REPLAYED] == "true"
    assert booked() == 1


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_on_sqlite_a_repetition_waits_for_the_first(database):
    slow = Slow()
    view = idempotent_request(slow)
    first = Worker(view, request())
    wait_for(slow.entered, "the view is entered")
    second = Worker(view, request())
    slow.let_go.set()
    statuses = {first.result().status_code, second.result().status_code}
    assert statuses <= {201, 409}
    assert booked() == 1


@pytest.mark.parametrize("database", ["postgresql", "mysql"], indirect=True)
def test_many_repetitions_at_once_take_effect_once(database):
    def send() -> int:
        return post("/order").status_code

    statuses = [worker.result() for worker in [Worker(send) for _ in range(8)]]
    assert set(statuses) <= {201, 409}
    assert 201 in statuses
    assert booked() == 1


@every_database
@pytest.mark.parametrize("url", ["/failing", "/async-failing"])
def test_what_a_view_raises_is_rolled_back_and_may_be_tried_again(database, url):
    assert post(url).status_code == 404
    assert booked() == 0
    assert not StoredResponse.objects.exists()


@every_database
def test_a_transaction_that_the_view_rolls_back_stores_nothing(database):
    for _ in range(2):
        response = post("/rolled-back")
        assert (response.status_code, REPLAYED in response) == (400, False)
    assert booked() == 0
    assert not StoredResponse.objects.exists()


@pytest.mark.parametrize("status", [200, 202, 204, 302, 400, 404, 410, 422])
def test_a_final_answer_is_stored(database, status):
    post(f"/status/{status}")
    response = post(f"/status/{status}")
    assert (response.status_code, response[REPLAYED]) == (status, "true")
    assert booked() == 1


@pytest.mark.parametrize("status", [401, 403, 409, 425, 429])
def test_an_answer_that_asks_to_come_again_is_not_stored(database, status):
    post(f"/status/{status}")
    assert REPLAYED not in post(f"/status/{status}")
    assert not StoredResponse.objects.exists()


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_server_error_is_rolled_back_and_not_stored(database, status):
    assert post(f"/status/{status}").status_code == status
    assert booked() == 0
    assert not StoredResponse.objects.exists()


@every_database
def test_an_expired_response_is_forgotten_and_the_key_is_new(database):
    post("/short-lived")
    StoredResponse.objects.update(expires_at="2020-01-01T00:00:00Z")
    assert list(StoredResponse.objects.expired()) == [StoredResponse.objects.get()]
    assert REPLAYED not in post("/short-lived", '{"item": 2}')
    assert booked() == 2
    assert StoredResponse.objects.count() == 1


@every_database
def test_a_request_that_never_ended_had_no_effect_and_may_be_made_again(database):
    def die(request: Any) -> HttpResponse:
        LedgerEntry.objects.create(account="orders")
        raise SystemExit

    # Killed before it could give the key back: only the reservation is committed.
    StoredResponse.objects.all().delete()
    with pytest.raises(SystemExit):
        idempotent_request(die)(request())
    assert (booked(), StoredResponse.objects.count()) == (0, 0)


@every_database
def test_an_abandoned_reservation_is_taken_over_when_its_lease_ends(database):
    abandon()
    view = idempotent_request(lambda request: HttpResponse("done"))
    assert view(request()).status_code == 409
    assert not StoredResponse.objects.expired().exists()
    StoredResponse.objects.update(lease_expires_at="2020-01-01T00:00:00Z")
    assert view(request()).content == b"done"
    assert view(request())[REPLAYED] == "true"


@pytest.mark.parametrize("database", ["postgresql", "mysql"], indirect=True)
def test_a_view_that_outlives_its_lease_is_rolled_back_when_another_took_over(database):
    slow = Slow()
    first = Worker(idempotent_request(slow), request())
    wait_for(slow.entered, "the view is entered")
    StoredResponse.objects.update(lease_expires_at="2020-01-01T00:00:00Z")
    second = idempotent_request(lambda request: HttpResponse("second"))(request())
    slow.let_go.set()
    assert second.content == b"second"
    assert first.result().status_code == 409
    assert booked() == 0


def abandon() -> None:
    """A process took the key and was killed while it handled the request."""
    connection = connections["default"]

    def killed(request: Any) -> HttpResponse:
        row = StoredResponse.objects.values().get()
        kept.append(row)
        raise SystemExit

    kept: list[dict[str, Any]] = []
    with pytest.raises(SystemExit):
        idempotent_request(killed)(request())
    StoredResponse.objects.create(**kept[0])
    assert connection.in_atomic_block is False


def test_a_streaming_response_is_refused_and_rolled_back(database):
    with pytest.raises(ResponseNotStorable, match="StreamingHttpResponse"):
        post("/streaming")
    assert booked() == 0
    assert not StoredResponse.objects.exists()


def test_a_body_too_long_to_store_is_given_once_and_the_effect_stays_single(database):
    first, second = post("/large"), post("/large")
    assert len(first.content) == 1000
    assert (second.status_code, second.content) == (201, b"")
    assert second[REPLAYED] == "true"
    assert second["Location"] == first["Location"]
    assert "Content-Type" not in second
    assert booked() == 1
    assert StoredResponse.objects.get().body is None


def test_bodies_stay_out_of_the_table_by_choice(database):
    first, second = post("/without-body"), post("/without-body")
    assert first.content
    assert (second.status_code, second.content) == (201, b"")
    assert second["Location"] == first["Location"]
    row = StoredResponse.objects.get()
    assert row.body is None
    assert "Content-Type" not in row.headers


def test_a_template_response_is_rendered_and_stored(database):
    first, second = post("/template"), post("/template")
    assert first.content == second.content
    assert second[REPLAYED] == "true"


def test_a_redirect_is_replayed_as_one(database):
    first, second = post("/redirect"), post("/redirect")
    assert (second.status_code, second["Location"]) == (302, first["Location"])


@every_database
def test_a_binary_body_comes_back_byte_for_byte(database):
    first, second = post("/binary"), post("/binary")
    assert second.content == first.content == bytes(range(256))


@every_database
def test_the_table_holds_neither_key_nor_body_of_the_request(database):
    post("/order", '{"card": "4111111111111111"}')
    row = StoredResponse.objects.values().get()
    text = repr(row)
    assert KEY not in text
    assert "4111" not in text


def upload(content: bytes = b"text", name: str = "Jane") -> Any:
    file = SimpleUploadedFile("a.txt", content, content_type="text/plain")
    return Client().post("/form", {"name": name, "file": file}, headers={"Idempotency-Key": KEY})


def test_a_form_is_recognised_by_its_parts_and_not_by_its_boundary(database, monkeypatch):
    first = upload()
    monkeypatch.setattr("django.test.client.BOUNDARY", "AnotherBoundary")
    monkeypatch.setattr(
        "django.test.client.MULTIPART_CONTENT", "multipart/form-data; boundary=AnotherBoundary"
    )
    second = Client().post(
        "/form",
        {"name": "Jane", "file": SimpleUploadedFile("a.txt", b"text", content_type="text/plain")},
        content_type="multipart/form-data; boundary=AnotherBoundary",
        headers={"Idempotency-Key": KEY},
    )
    assert first.json() == {"name": "Jane", "files": {"file": "text"}}
    assert second.content == first.content
    assert second[REPLAYED] == "true"


@pytest.mark.parametrize("changed", [{"content": b"other"}, {"name": "John"}])
def test_a_form_with_other_parts_is_another_request(database, changed):
    upload()
    assert_problem(upload(**changed), 422, "reused")


def test_users_have_keys_of_their_own(database):
    clients = []
    for name in ("jane", "john"):
        client = Client()
        client.force_login(get_user_model().objects.create_user(name))
        clients.append(client)
    answers = [post("/order", client=client).json() for client in clients]
    assert answers[0] != answers[1]
    assert post("/order", client=clients[0]).json() == answers[0]
    assert post("/order").json() not in answers
    assert booked() == 3


def test_credentials_tell_clients_apart_where_there_is_no_user(database):
    jane, john = {"Authorization": "Bearer jane"}, {"Authorization": "Bearer john"}
    assert post("/order", headers=jane).json() != post("/order", headers=john).json()
    assert post("/order", headers=jane)[REPLAYED] == "true"


def test_the_scope_can_be_anything_of_the_request(database):
    post("/scoped", headers={"X-Tenant": "1"})
    assert REPLAYED not in post("/scoped", headers={"X-Tenant": "2"})
    assert post("/scoped", headers={"X-Tenant": "1"})[REPLAYED] == "true"


@every_database
@pytest.mark.parametrize("url", ["/order", "/class", "/in-a-transaction", "/async"])
def test_it_works_under_atomic_requests(database, atomic_requests, url):
    first, second = post(url), post(url)
    assert first.content == second.content
    assert second[REPLAYED] == "true"
    assert booked() == 1


def test_without_a_key_atomic_requests_hold_as_before(database, atomic_requests):
    assert post("/in-a-transaction", key=None).json()["open"] is True
    assert post("/failing", key=None).status_code == 404
    assert booked() == 1


def test_without_a_key_and_without_atomic_requests_there_is_no_transaction(database):
    assert post("/in-a-transaction", key=None).json()["open"] is False
    assert post("/in-a-transaction").json()["open"] is True


def test_on_a_method_under_atomic_requests_it_says_where_it_belongs(database, atomic_requests):
    with pytest.raises(InTransaction, match=r"dispatch\(\)"):
        post("/method")
    assert booked() == 0


def test_on_a_method_without_atomic_requests_it_works(database):
    post("/method")
    assert post("/method")[REPLAYED] == "true"


@every_database
@pytest.mark.parametrize("url", ["/async", "/async-class", "/order", "/class"])
def test_it_works_on_an_asynchronous_server(database, url):
    async def send_twice() -> list[Any]:
        client = AsyncClient()
        return [
            await client.post(
                url, "{}", content_type="application/json", headers={"Idempotency-Key": KEY}
            )
            for _ in range(2)
        ]

    first, second = async_to_sync(send_twice)()
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.content == second.content
    assert second[REPLAYED] == "true"
    assert booked() == 1


@every_database
def test_an_async_views_database_calls_are_in_the_transaction(database):
    async def send(url: str) -> Any:
        return await AsyncClient().post(
            url, "{}", content_type="application/json", headers={"Idempotency-Key": KEY}
        )

    assert async_to_sync(send)("/async").json()["open"] is True
    assert async_to_sync(send)("/async-failing").status_code == 404
    assert booked() == 1


def test_an_async_class_answers_requests_without_a_key(database):
    async def read() -> Any:
        return await AsyncClient().get("/async-class")

    assert async_to_sync(read)().content == b"read"
    assert Client().get("/async-class").content == b"read"


def test_csrf_protection_stays(database):
    client = Client(enforce_csrf_checks=True)
    assert post("/csrf-protected", client=client).status_code == 403
    assert not StoredResponse.objects.exists()


def test_the_view_keeps_its_name():
    def named(request: Any) -> HttpResponse:
        """Says so."""
        return HttpResponse()

    decorated = idempotent_request(named)
    assert (decorated.__name__, decorated.__doc__) == ("named", "Says so.")


@every_database
def test_it_works_inside_the_transaction_of_a_test_case(database):
    class Inside(TestCase):
        databases = {"default"}

        def test(self) -> None:
            with override_settings(ROOT_URLCONF="tests.support.idempotent_views"):
                assert post("/order").content == post("/order").content
                assert post("/failing").status_code == 404
                assert booked() == 1

    result = Inside("test").run()
    assert result is not None
    assert result.wasSuccessful(), result.errors + result.failures


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match="requierd"):
        idempotent_request(requierd=True)


def test_responses_expire_by_the_databases_clock(database):
    post("/order")
    row = StoredResponse.objects.get()
    assert timedelta(hours=23) < row.expires_at - row.created_at <= timedelta(hours=24)
