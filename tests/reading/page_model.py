"""A made-up server of a model that sees: it answers a chat's completion with what a test says it reads of a page."""
import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class PageModel:
    """`answer` gets the number of the request, from 1, and the picture; it gives text, or (status, body), or "hang"."""

    def __init__(self, answer):
        self.answer, self.asked, self.heads = answer, [], []
        self.released = threading.Event()
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                parts = body["messages"][0]["content"]
                url = next(part["image_url"]["url"] for part in parts if part["type"] == "image_url")
                picture = base64.b64decode(url.partition(";base64,")[2])
                model.asked.append(body)
                model.heads.append((self.path, dict(self.headers)))
                said = model.answer(len(model.asked), picture)
                if said == "hang":
                    model.released.wait(120)
                    return
                status, data = said if isinstance(said, tuple) else (200, json.dumps({"choices": [
                    {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}]}))
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data.encode())))
                self.end_headers()
                self.wfile.write(data.encode())

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()

    def options(self, **more):
        values = {"reader": "model", "model_url": self.url, "model": "seer", **more}
        return [word for name, value in values.items() for word in ("--set", f"extract.{name}={value}")]
