"""What the page about the dashboard shows runs, in the frameworks that it names; and the tour shows every page."""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from mainspring.web.pages import ALL
from tests.project.test_docs_code import ROOT, blocks_under, run

PAGE = "docs/how-to/dashboard.md"
TOUR = (ROOT / "docs/reference/dashboard-tour.md").read_text(encoding="utf-8")
PICTURES = ROOT / "docs/assets/screenshots"
MOST_OF_ALL = 5_000_000
"""Bytes of all pictures together."""

ASKING = """
import asyncio

import httpx
from starlette.authentication import SimpleUser, UnauthenticatedUser


async def asked(asgi, *paths, at="example.com", **headers):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(asgi), base_url=f"http://{at}") as client:
        for path in paths:
            answer = await client.get(path, headers=headers)
            print(path, answer.status_code, "<h1>" in answer.text)
"""
MOUNTED = """
async def with_user(scope, receive, send):
    await site({**scope, "user": SimpleUser("anna")}, receive, send)


async def with_stranger(scope, receive, send):
    await site({**scope, "user": UnauthenticatedUser()}, receive, send)


async def main():
    await asked(site, "/mainspring/")
    await asked(with_stranger, "/mainspring/")
    await asked(with_user, "/mainspring/", "/mainspring/jobs", "/mainspring/api/v1/overview", "/mainspring/healthz", "/mainspring/metrics")
    await app.close()


asyncio.run(main())
"""
EXPECTED = """\
/mainspring/ 401 True
/mainspring/ 401 True
/mainspring/ 200 True
/mainspring/jobs 200 True
/mainspring/api/v1/overview 200 False
/mainspring/healthz 200 False
/mainspring/metrics 200 False
"""


CLOSED = """
async def main():
    await asked(site, "/mainspring/", "/mainspring/jobs", at="127.0.0.1")
    await asked(site, "/mainspring/")
    await app.close()


asyncio.run(main())
"""


@pytest.mark.slow
def test_the_simplest_mount_is_open_to_this_machine_only(tmp_path: Path) -> None:
    simplest, *_ = blocks_under(PAGE, "In FastAPI and Starlette")
    (tmp_path / "page.py").write_text(f"{simplest}\n{ASKING}\n{CLOSED}", encoding="utf-8")
    assert run("page.py", cwd=tmp_path).splitlines() == [
        "/mainspring/ 200 True",
        "/mainspring/jobs 200 True",
        "/mainspring/ 403 True",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2], ids=["FastAPI", "Starlette"])
def test_it_is_mounted_as_the_page_says(tmp_path: Path, parts: int) -> None:
    _simplest, *shown = blocks_under(PAGE, "In FastAPI and Starlette")
    assert len(shown) == 2
    (tmp_path / "page.py").write_text("\n".join([*shown[:parts], ASKING, MOUNTED]), encoding="utf-8")
    assert run("page.py", cwd=tmp_path) == EXPECTED


SETTINGS = """
from pathlib import Path

SECRET_KEY = "of this test only"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path("site.db")}}
ROOT_URLCONF = "shop.urls"
ALLOWED_HOSTS = ["example.com"]
USE_TZ = True
"""
URLS = """
from django.http import HttpResponse
from django.urls import path

urlpatterns = [path("", lambda request: HttpResponse("<h1>a shop</h1>"))]
"""
IN_DJANGO = """
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.core.management import call_command

call_command("migrate", verbosity=0)


def signed_in(name, **rights):
    user = User.objects.create_user(name, password="correct horse", **rights)
    session = sessions.SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    return f"{settings.SESSION_COOKIE_NAME}={session.session_key}"


people = signed_in("anna", is_staff=True), signed_in("bob")


async def main():
    await asked(application, "/", "/mainspring", "/mainspring/", "/mainsprings")
    for cookie in people:
        await asked(application, "/mainspring/jobs", cookie=cookie)
    await app.close()


asyncio.run(main())
"""


@pytest.mark.slow
def test_it_is_mounted_in_django_as_the_page_says(tmp_path: Path) -> None:
    pytest.importorskip("django")
    (shown,) = blocks_under(PAGE, "In Django")
    folder = tmp_path / "shop"
    folder.mkdir()
    for name, text in {"__init__": "", "settings": SETTINGS, "urls": URLS}.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    (tmp_path / "page.py").write_text(f"{shown}\n{ASKING}\n{IN_DJANGO}", encoding="utf-8")
    told = run("page.py", cwd=tmp_path).splitlines()
    assert told == [
        "/ 200 True",
        "/mainspring 307 False",
        "/mainspring/ 401 True",
        "/mainsprings 404 True",
        "/mainspring/jobs 200 True",
        "/mainspring/jobs 401 True",
    ]


def test_every_page_of_the_dashboard_is_shown_in_light_and_dark() -> None:
    wanted = {f"{page.path or 'overview'}-{look}.png" for page in ALL for look in ("light", "dark")}
    advice = "take the pictures again with: python tools/screenshots.py"
    assert {path.name for path in PICTURES.iterdir()} == wanted, advice
    shown = re.findall(r"!\[[^\]]+\]\(\.\./assets/screenshots/([\w-]+-(light|dark)\.png)#only-(light|dark)\)", TOUR)
    assert {name for name, _, _ in shown} == wanted
    assert all(look == only for _, look, only in shown)


def test_the_tour_says_what_the_script_says() -> None:
    spec = spec_from_file_location("screenshots", ROOT / "tools" / "screenshots.py")
    assert spec
    assert spec.loader
    tool = module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.tour() == TOUR, "write it again with: python tools/screenshots.py"


def test_pictures_are_no_burden() -> None:
    assert sum(path.stat().st_size for path in PICTURES.iterdir()) < MOST_OF_ALL
    for path in PICTURES.iterdir():
        data = path.read_bytes()
        assert (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")) == (1360, 860), path.name
