"""A fake of the two APIs that comments on changes are posted by: GitHub's (issue comments) and GitLab's (notes of merge requests).

It answers as the documentation of both says: status, fields, pages, refused tokens, bodies that are too long. Prints its address on stdout,
and appends each request that changes something to the file that its argument names.

    https://docs.github.com/en/rest/issues/comments (2022-11-28)
    https://docs.gitlab.com/api/notes/#merge-requests
"""

import http.server
import json
import re
import sys
import urllib.parse

TOKEN = "a-token"
BODY_CHARACTERS_MAX = 65536
GITHUB = re.compile(r"/repos/(?P<owner>[^/]+)/(?P<name>[^/]+)/issues/(?:(?P<issue>\d+)/comments|comments/(?P<id>\d+))$")
GITLAB = re.compile(r"/api/v4/projects/(?P<project>\d+)/merge_requests/(?P<issue>\d+)/notes(?:/(?P<id>\d+))?$")
comments = {}


class Host(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, value, headers=()):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        for name, text in headers:
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def comment(self, number, body, github):
        one = {"id": number, "body": body, "created_at": "2026-11-29T00:00:00Z", "updated_at": "2026-11-29T00:00:00Z"}
        if github:
            return one | {
                "node_id": f"IC_{number}",
                "user": {"login": "github-actions[bot]", "id": 41898282, "type": "Bot"},
                "author_association": "NONE",
            }
        return one | {"author": {"id": 1, "username": "project_1_bot"}, "system": False, "noteable_type": "MergeRequest"}

    def handle_request(self):
        address = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(address.query)
        length = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(length)
        github, gitlab = GITHUB.match(address.path), GITLAB.match(address.path)
        found = github or gitlab
        if not found:
            return self.answer(404, {"message": "Not Found", "status": "404"})
        allowed = (
            self.headers.get("Authorization") == f"Bearer {TOKEN}" if github else self.headers.get("PRIVATE-TOKEN") == TOKEN
        )
        if not allowed:
            return self.answer(401, {"message": "Bad credentials" if github else "401 Unauthorized"})
        if self.command == "GET":
            size = min(int(query.get("per_page", ["30" if github else "20"])[0]), 100)
            page = int(query.get("page", ["1"])[0])
            of_issue = [one for (issue, one) in comments.values() if issue == found["issue"]]
            part = of_issue[(page - 1) * size : page * size]
            more = [("Link", f'<{address.path}?per_page={size}&page={page + 1}>; rel="next"')] if page * size < len(of_issue) else []
            return self.answer(200, part, more)
        try:
            body = json.loads(data)["body"]
        except (ValueError, KeyError, TypeError):
            return self.answer(422 if github else 400, {"message": "Validation Failed"})
        if not isinstance(body, str) or not body or len(body) > BODY_CHARACTERS_MAX:
            return self.answer(422 if github else 400, {"message": "Validation Failed"})
        if self.command == "POST" and not found["id"]:
            number = 1000 + len(comments)
            comments[number] = (found["issue"], self.comment(number, body, github))
            status = 201
        elif self.command == ("PATCH" if github else "PUT") and found["id"] and int(found["id"]) in comments:
            number = int(found["id"])
            comments[number][1]["body"] = body
            status = 200
        else:
            return self.answer(404, {"message": "Not Found", "status": "404"})
        with open(sys.argv[1], "a", encoding="utf-8") as log:
            log.write(json.dumps({"method": self.command, "id": number, "body": body}) + "\n")
        return self.answer(status, comments[number][1])

    do_GET = do_POST = do_PATCH = do_PUT = handle_request

    def log_message(self, *_):
        pass


# Comments of other people fill more than a page.
for at in range(int(sys.argv[2]) if len(sys.argv) > 2 else 0):
    comments[at] = ("7", {"id": at, "body": f"comment {at}", "user": {"login": "someone", "type": "User"}})
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Host)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
