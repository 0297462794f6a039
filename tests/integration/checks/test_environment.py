from __future__ import annotations


def test_the_other_distribution_of_this_name_is_found(tmp_path, monkeypatch, run_checks):
    information = tmp_path / "django_outbox-0.1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: django-outbox\nVersion: 0.1.0\n"
    )
    assert run_checks() == []
    monkeypatch.syspath_prepend(tmp_path)
    (message,) = run_checks()
    assert message.id == "django_outbox.E020"
    assert "pip uninstall django-outbox" in message.hint
