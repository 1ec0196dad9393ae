"""A receiver of OTLP/HTTP with JSON, with the protocol's own definitions (opentelemetry-proto): anything outside of them is rejected.

    python3 otlp_receiver.py takes|busy-once|refuses

Prints its port, then one line of JSON per request: its spans. It is not a collector, hence a fake; `scripts/otelcol` builds a real
one.
"""

import base64
import http.server
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

MODE = sys.argv[1]
SEEN = {"requests": 0}


def in_base64(value):
    """OTLP encodes IDs in hexadecimal, where protobuf's JSON has base64."""
    if isinstance(value, dict):
        return {
            key: base64.b64encode(bytes.fromhex(item)).decode() if key in ("traceId", "spanId", "parentSpanId") else in_base64(item)
            for key, item in value.items()
        }
    return [in_base64(item) for item in value] if isinstance(value, list) else value


def plain(value):
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None


def spans(body):
    request = json_format.Parse(json.dumps(in_base64(json.loads(body))), ExportTraceServiceRequest(), ignore_unknown_fields=False)
    found = []
    for resource in request.resource_spans:
        of = {item.key: plain(item.value) for item in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                assert len(span.trace_id) == 16 and len(span.span_id) == 8 and len(span.parent_span_id) == 8, span
                found.append(
                    {
                        "trace_id": span.trace_id.hex(),
                        "span_id": span.span_id.hex(),
                        "parent_span_id": span.parent_span_id.hex(),
                        "name": span.name,
                        "start": span.start_time_unix_nano,
                        "end": span.end_time_unix_nano,
                        "attributes": {item.key: plain(item.value) for item in span.attributes},
                        "resource": of,
                    }
                )
    return found


class Receiver(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        SEEN["requests"] += 1
        if self.path != "/v1/traces" or self.headers["Content-Type"] != "application/json":
            return self.answer(404, b"{}")
        if MODE == "busy-once" and SEEN["requests"] == 1:
            return self.answer(503, b"{}", Retry_After="1")
        print(json.dumps(spans(body)), flush=True)
        if MODE == "refuses":
            return self.answer(400, b'{"message": "not today"}')
        self.answer(200, b"{}")


server = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
print(server.server_port, flush=True)
server.serve_forever()
