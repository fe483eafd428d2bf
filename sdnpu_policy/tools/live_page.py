"""A live page on loopback: what the camera sees, and how the ladder stands. For ``sdnpu demo --view``."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sdnpu_policy.sim.cell import Scene, render

_PAGE = b"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>sdnpu demo</title><style>
:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:1rem auto;padding:0 1rem}
img{width:100%;border-radius:4px}dl{display:grid;grid-template-columns:10rem 1fr;gap:.2rem 1rem}dt{font-weight:600}
dd{margin:0;font-variant-numeric:tabular-nums}</style></head><body><h1>sdnpu demo</h1>
<img id="camera" alt="What the cell's camera sees"><p id="message" role="status"></p><dl id="values"></dl><script>
async function turn(){try{
 document.getElementById('camera').src='/frame.jpg?'+Date.now();
 const s=await (await fetch('/state.json')).json();
 document.getElementById('message').textContent=s.message;
 const list=document.getElementById('values');list.replaceChildren();
 for(const [k,v] of Object.entries(s.values)){const t=document.createElement('dt'),d=document.createElement('dd');
  t.textContent=k;d.textContent=v;list.append(t,d);}
}catch(e){document.getElementById('message').textContent='the demo has ended';}
setTimeout(turn,200);}turn();</script></body></html>"""
_REFRESH_S = 0.2


class LivePage:
    """Serves the page until closed. Binds to 127.0.0.1 alone."""

    def __init__(self, port: int = 0) -> None:
        self._jpeg = b""
        self._state = json.dumps({"message": "starting", "values": {}}).encode()
        self._shown_s = 0.0
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.partition("?")[0]
                answers = {
                    "/": ("text/html; charset=utf-8", _PAGE),
                    "/frame.jpg": ("image/jpeg", page._jpeg),
                    "/state.json": ("application/json", page._state),
                }
                if name not in answers:
                    self.send_error(404)
                    return
                kind, body = answers[name]
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "no-store")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="live-page", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def show(self, scene: Scene, pose: NDArray[np.float64], status: Any) -> None:
        """Show this moment, at most five times a second."""
        if time.monotonic() - self._shown_s < _REFRESH_S:
            return
        self._shown_s = time.monotonic()
        image = render(scene, pose, np.random.default_rng(0))
        done, jpeg = cv2.imencode(".jpg", image[..., ::-1])
        if done:
            self._jpeg = jpeg.tobytes()
        if status is not None:
            values = {str(pair.key): str(pair.value) for pair in status.values}
            self._state = json.dumps({"message": str(status.message), "values": values}).encode()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2.0)
