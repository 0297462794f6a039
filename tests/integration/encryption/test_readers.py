"""Other people's JOSE libraries open what is sealed here, and the other way round.

They get the exported key alone, as a consumer in another language would.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jwcrypto import jwe as jwcrypto_jwe
from jwcrypto import jwk as jwcrypto_jwk

from django_outbox.encryption import jwe
from django_outbox.encryption.exceptions import DecryptionFailed
from django_outbox.encryption.keyrings import parse_keyring
from tests.integration.encryption.conftest import entry
from tests.support.node import npm_package

PLACE = {
    "topic": "customer.registered",
    "message_id": "0192f3a4-7b1c-7e00-8a11-2233445566aa",
    "pointer": "/customer/émail~1",
}
MEMBERS = [
    '"ayşe@example.com"',
    "12345678901",
    "null",
    "1.50",
    '{"a":[true,"👩‍💻"]}',
    f'"{"x" * 100_000}"',
]

#: Reads {"jwk", "tokens", "header", "plaintexts"}; opens the tokens, and seals the plaintexts.
SCRIPT = """
import { pathToFileURL } from "node:url";
import { readFileSync } from "node:fs";
const jose = await import(pathToFileURL(process.argv[2]).href);
const input = JSON.parse(readFileSync(0, "utf8"));
const key = await jose.importJWK(input.jwk, "A256KW");
const opened = [], sealed = [];
for (const token of input.tokens) {
  const { plaintext, protectedHeader } = await jose.compactDecrypt(token, key);
  opened.push([new TextDecoder().decode(plaintext), protectedHeader]);
}
for (const plaintext of input.plaintexts) {
  sealed.push(await new jose.CompactEncrypt(new TextEncoder().encode(plaintext))
    .setProtectedHeader(input.header).encrypt(key));
}
console.log(JSON.stringify({ opened, sealed }));
"""


def ring() -> Any:
    return parse_keyring(f"{entry('b')} {entry('a', 'retired')}")


def header(kid: str = "b") -> dict[str, str]:
    return {
        "alg": "A256KW",
        "enc": "A256GCM",
        "kid": kid,
        "msg": PLACE["message_id"],
        "ptr": PLACE["pointer"],
        "top": PLACE["topic"],
    }


def seal(member: str) -> str:
    return jwe.seal_member(member, keyring=ring(), **PLACE)


def open_here(token: str) -> str:
    return jwe.open_member(token, keyring=ring(), **PLACE)


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member[:12])
def test_jwcrypto_opens_what_is_sealed_here(member: str):
    key = jwcrypto_jwk.JWK(**jwe.exported_jwk(ring(), PLACE["topic"]))
    token = jwcrypto_jwe.JWE()
    token.deserialize(seal(member), key)
    assert token.payload.decode() == member
    assert json.loads(token.objects["protected"]) == header()


@pytest.mark.parametrize("kid", ["a", "b"])
@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member[:12])
def test_what_jwcrypto_seals_opens_here(member: str, kid: str):
    key = jwcrypto_jwk.JWK(**jwe.exported_jwk(ring(), PLACE["topic"], kid))
    token = jwcrypto_jwe.JWE(member.encode(), protected=json.dumps(header(kid)), recipient=key)
    assert open_here(token.serialize(compact=True)) == member


def test_the_key_of_another_topic_opens_nothing():
    key = jwcrypto_jwk.JWK(**jwe.exported_jwk(ring(), "invoice.issued"))
    with pytest.raises(jwcrypto_jwe.InvalidJWEData):
        jwcrypto_jwe.JWE().deserialize(seal('"x"'), key)


def run_node(tmp_path: Path, **given: Any) -> dict[str, Any]:
    package = npm_package("jose", "6.2.18")
    entry_point = json.loads((package / "package.json").read_text("utf-8"))["exports"]["."]
    script = tmp_path / "reader.mjs"
    script.write_text(SCRIPT)
    done = subprocess.run(
        ["node", str(script), str(package / _path_of(entry_point))],
        input=json.dumps({"tokens": [], "plaintexts": [], "header": header(), **given}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _path_of(exported: Any) -> str:
    while isinstance(exported, dict):
        exported = exported.get("import") or exported.get("node") or exported["default"]
    return str(exported)


def test_jose_under_node_opens_what_is_sealed_here(tmp_path: Path):
    jwk = jwe.exported_jwk(ring(), PLACE["topic"])
    answer = run_node(tmp_path, jwk=jwk, tokens=[seal(member) for member in MEMBERS])
    assert answer["opened"] == [[member, header()] for member in MEMBERS]


def test_what_jose_under_node_seals_opens_here(tmp_path: Path):
    jwk = jwe.exported_jwk(ring(), PLACE["topic"])
    answer = run_node(tmp_path, jwk=jwk, plaintexts=MEMBERS)
    assert [open_here(token) for token in answer["sealed"]] == MEMBERS
    elsewhere = run_node(
        tmp_path, jwk=jwk, plaintexts=['"x"'], header={**header(), "ptr": "/other"}
    )
    with pytest.raises(DecryptionFailed, match="place"):
        open_here(elsewhere["sealed"][0])
