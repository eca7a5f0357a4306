"""A request to a running server, for the scripts beside this file. Standard library only."""
import json
import urllib.error
import urllib.request


def ask_server(server, path, body=None):
    """The reply as JSON; a body is posted. ValueError with the server's words when it refuses."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as refused:
        raise ValueError(f"{path}: {refused.code}: {json.load(refused)['error']['message']}") from None
