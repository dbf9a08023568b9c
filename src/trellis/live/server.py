"""The server of ``trellis live`` and ``record``: this machine alone, and bounded uploads.

Every address begins with the token. The host must be this server by name, so that another site
cannot reach it by a name of its own (DNS rebinding). A request that changes something must come
from the page: its origin must be this server's. Any other request gets an empty error.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..deploy.wasm.write import packaged
from ..errors import TrellisError
from .hands import read as read_hands
from .session import Session

LARGEST = 2 << 20  # bytes of an upload
_TYPES = {
    "html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8", "wasm": "application/wasm",
    "json": "application/json", "zip": "application/zip",
}  # fmt: skip
_POLICY = "; ".join(
    [
        "default-src 'none'", "script-src 'self' 'wasm-unsafe-eval'", "style-src 'self'",
        "connect-src 'self'", "img-src 'self' data:", "media-src 'self' blob: mediastream:",
        "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
    ]
)  # fmt: skip
_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
_PAGE = ("page.css", "page.js", "camera.js", "hand.js", "videos.js")


def new_token() -> str:
    """Return a token that nobody can guess."""
    return secrets.token_urlsafe(24)


class Guard:
    """Refuse requests without the token, from other hosts or origins, or with a large body."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        status = 404 if scope["type"] != "http" else self._refused(scope)
        if status:
            if scope["type"] == "http":
                await Response(status_code=status, headers=_HEADERS)(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                kept = [(n, v) for n, v in message["headers"] if n.decode() not in _HEADERS]
                message = {**message, "headers": [*kept, *own]}
            await send(message)

        await self.app({**scope, "path": scope["path"][len(self.token) + 1 :]}, receive, guarded)

    def _refused(self, scope: Scope) -> int:
        """Return 0, or the status of a refusal."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        hosts, origins = headers.get("host", []), headers.get("origin", [])
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            return 403
        first = scope["path"].split("/")[1] if "/" in scope["path"] else ""
        if not hmac.compare_digest(first.encode(), self.token.encode()):
            return 404
        if scope["path"] == f"/{self.token}":
            return 404
        if origins and origins != [f"http://{hosts[0]}"]:
            return 403
        if scope["method"] not in ("GET", "HEAD") and not origins:
            return 403
        if headers.get("sec-fetch-site", ["none"])[0] not in ("same-origin", "none"):
            return 403
        return 0


async def body_of(request: Request) -> Any:
    """Return the JSON of a request; raise if it is too large or damaged."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > LARGEST:
            raise TrellisError(f"expected at most {LARGEST:,} bytes")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise TrellisError("expected JSON") from None
    if not isinstance(found, dict):
        raise TrellisError("expected an object")
    return found


def application(first: str, routes: Sequence[Route], hands: Path, token: str, port: int) -> ASGIApp:
    """Return a server's application.

    Args:
        first: The file of the page that is opened.
        routes: What the page asks for.
        hands: The folder of the hand detector.
        token: The token that addresses begin with.
        port: The port of the server.
    """

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", first)
        if name == "model.js":
            script = packaged("model.js") + packaged("stream.js")
            content = f"{script}\nexport {{openNetwork, openStream}};\n".encode()
        elif name in (first, *_PAGE):
            content = files("trellis.live").joinpath("page", name).read_bytes()
        else:
            raise KeyError(name)
        return Response(content, media_type=_TYPES[name.rpartition(".")[2]])

    async def detector(request: Request) -> Response:
        name = request.path_params["name"]
        content = await run_in_threadpool(read_hands, hands, name)
        kind = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
        return Response(content, media_type=kind)

    async def refused(request: Request, error: Exception) -> Response:
        return answered({"error": str(error)}, 400)

    own = [Route("/", page), Route("/hands/{name}", detector), *routes, Route("/{name}", page)]
    inner = Starlette(routes=own, exception_handlers={TrellisError: refused, KeyError: missing})
    return Guard(inner, token, port)


def answered(found: Any, status: int = 200) -> Response:
    """Answer with JSON."""
    return JSONResponse(found, status)


async def missing(request: Request, error: Exception) -> Response:
    """Answer for a name that does not exist."""
    return Response(status_code=404)


def routes_of(session: Session) -> list[Route]:
    """Return what the page of ``trellis live`` asks for."""

    async def state(request: Request) -> Response:
        return answered(session.state(request.headers.get("x-page", "")))

    async def opened(request: Request) -> Response:
        given = await body_of(request)
        session.open(str(given.get("page", ""))[:80])
        return answered(session.state(str(given.get("page", ""))[:80]))

    async def add(request: Request) -> Response:
        given = await body_of(request)
        clip = await run_in_threadpool(session.clips.add, given.get("name"), given.get("frames"))
        return answered({"file": clip.file})

    async def remove(request: Request) -> Response:
        given = await body_of(request)
        await run_in_threadpool(session.clips.remove, given.get("file"))
        return answered({})

    async def clip(request: Request) -> Response:
        given = await body_of(request)
        return answered({"frames": await run_in_threadpool(session.frames, given.get("file"))})

    async def train(request: Request) -> Response:
        session.train()
        return answered({})

    async def stop(request: Request) -> Response:
        await run_in_threadpool(session.stop)
        return answered({})

    async def made(request: Request) -> Response:
        name = request.path_params["name"]
        content = await run_in_threadpool(session.made, name)
        headers = {}
        if name != "model.wasm":
            headers["content-disposition"] = f'attachment; filename="{name}"'
        kind = _TYPES[name.rpartition(".")[2]]
        return Response(content, media_type=kind, headers=headers)

    return [
        Route("/state", state), Route("/open", opened, methods=["POST"]),
        Route("/clips", add, methods=["POST"]), Route("/clips/remove", remove, methods=["POST"]),
        Route("/clips/frames", clip, methods=["POST"]), Route("/train", train, methods=["POST"]),
        Route("/stop", stop, methods=["POST"]), Route("/made/{name}", made),
    ]  # fmt: skip


def serve(
    app: ASGIApp,
    sock: socket.socket,
    ready: Callable[[], object] | None = None,
    ended: threading.Event | None = None,
) -> None:
    """Serve an application on a bound socket, until Ctrl-C or until ``ended`` is set.

    Args:
        app: The application.
        sock: A socket that is bound to 127.0.0.1.
        ready: Called once the server answers.
        ended: Ends the server when it is set.
    """
    config = uvicorn.Config(
        app, log_level="error", access_log=False, server_header=False, lifespan="off",
        ws="none", proxy_headers=False, h11_max_incomplete_event_size=16384, limit_concurrency=64,
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(config)
    if ready is not None:
        threading.Thread(target=_when_started, args=(server, ready), daemon=True).start()
    if ended is not None:
        threading.Thread(target=_until, args=(server, ended), daemon=True).start()
    try:
        server.run(sockets=[sock])
    except KeyboardInterrupt:
        pass
    finally:
        sock.close()


def _when_started(server: uvicorn.Server, ready: Callable[[], object]) -> None:
    while not server.started and not server.should_exit:
        time.sleep(0.05)
    if server.started:
        ready()


def _until(server: uvicorn.Server, ended: threading.Event) -> None:
    ended.wait()
    server.should_exit = True
