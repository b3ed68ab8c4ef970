#!/usr/bin/env python3
"""A stock gRPC client against a running head: docs/protocol.md in 300 lines, with nothing of ours but the .proto.

    grpcio_client.py --target unix:/run/plasmon/head --token secret
    grpcio_client.py --target 127.0.0.1:4711 --token-file token

Needs Debian's python3-grpcio, python3-protobuf, protobuf-compiler and protobuf-compiler-grpc. The stubs are made in a
temporary folder when it runs. TAP on stdout; exit status 0 when every claim held. 77: something needed is not installed.
"""
import argparse
import os
import queue
import struct
import subprocess
import sys
import tempfile
import threading
import time

try:
    import grpc
except ImportError as missing:
    print(f"1..0 # SKIP {missing}")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
WIRE = os.path.join(HERE, "..", "..", "wire")
MIB = 1 << 20
F32 = 12
RUN, PUT, SNAPSHOT = 0, 1, 2
IN, OUT, INOUT = 1, 2, 3
ENOFUNCTION, ERELEASED, EDEPENDENCY = -10, -11, -23
WAIT_S = 30


def stubs():
    """The modules that protoc makes of plasmon.proto."""
    folder = tempfile.mkdtemp(prefix="plasmon-stubs-")
    plugin = "/usr/bin/grpc_python_plugin"
    try:
        subprocess.run(["protoc", f"--proto_path={WIRE}", f"--python_out={folder}", f"--grpc_python_out={folder}",
                        f"--plugin=protoc-gen-grpc_python={plugin}", "plasmon.proto"], check=True)
        sys.path.insert(0, folder)
        import plasmon_pb2
        import plasmon_pb2_grpc
        return plasmon_pb2, plasmon_pb2_grpc
    except (OSError, subprocess.CalledProcessError, ImportError) as missing:
        print(f"1..0 # SKIP {missing}")
        sys.exit(77)
    finally:
        subprocess.run(["rm", "-rf", folder], check=False)


pb, pb_grpc = stubs()


def function(name):
    """FNV-1a, 32 bits."""
    value = 2166136261
    for byte in name.encode():
        value = ((value ^ byte) * 16777619) & 0xffffffff
    return value


def f64(value):
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def shape(*dims):
    return pb.Shape(dtype=F32, dim=dims)


class Session:
    """One session: numbers frames, acknowledges, keeps what is not acknowledged, resumes."""

    def __init__(self, stub, token):
        self.stub = stub
        self.metadata = [("authorization", "Bearer " + token)] if token else []
        self.next_id = 0
        self.header = pb.Header(protocol=1)
        self.out_seq = 0
        self.in_seq = 0
        self.kept = []  # (seq, frame), oldest first
        self.changed = threading.Condition()
        self.done = {}  # task -> times told
        self.failed = {}
        self.data = {}
        self.pong = 0
        self.fatal = None
        self.welcome = None
        self.ended = None  # the call's end: (code, text)
        self.connect()

    # -- the stream

    def connect(self):
        self.requests = queue.Queue()
        self.welcome = None
        self.ended = None
        hello = pb.Hello(protocol_min=1, protocol_max=1, label="grpcio_client.py", resume_session=self.header.session,
                         resume_ack=self.in_seq)
        self.requests.put(pb.ClientFrame(header=self.head(0), hello=hello))
        self.call = self.stub.Session(iter(self.requests.get, None), metadata=self.metadata, wait_for_ready=True)
        threading.Thread(target=self.read, args=(self.call,), daemon=True).start()
        self.wait(lambda: self.welcome or self.ended, "welcome")
        if self.ended:
            raise AssertionError(f"no welcome but {self.ended}")
        with self.changed:
            self.acknowledged(self.welcome.resumed_seq)
            for _, frame in self.kept:
                self.requests.put(frame)

    def head(self, seq):
        header = pb.Header()
        header.CopyFrom(self.header)
        header.seq = seq
        header.ack = self.in_seq
        header.credit = (1 << 63) - 1
        return header

    def acknowledged(self, ack):
        self.kept = [(seq, frame) for seq, frame in self.kept if seq > ack]

    def read(self, call):
        try:
            for frame in call:
                with self.changed:
                    self.take(frame)
                    self.changed.notify_all()
            ended = (grpc.StatusCode.OK, "")
        except grpc.RpcError as error:
            ended = (error.code(), error.details())
        with self.changed:
            if call is self.call:
                self.ended = ended
            self.changed.notify_all()

    def take(self, frame):
        self.acknowledged(frame.header.ack)
        if frame.HasField("welcome"):
            self.header.epoch = frame.welcome.epoch
            self.header.session = frame.welcome.session
            self.welcome = frame.welcome
        if frame.pong:
            self.pong = frame.pong
        if frame.HasField("fatal"):
            self.fatal = frame.fatal
        if frame.header.seq:
            assert frame.header.seq <= self.in_seq + 1, f"a gap: {frame.header.seq} after {self.in_seq}"
            if frame.header.seq <= self.in_seq:
                return
            self.in_seq = frame.header.seq
        for run in frame.done:
            for task in range(run.first, run.first + run.count):
                self.done[task] = self.done.get(task, 0) + 1
        for failure in frame.failed:
            self.failed[failure.task] = failure
        for data in frame.data:
            self.data[data.request] = data

    def send(self, **ops):
        with self.changed:
            self.out_seq += 1
            frame = pb.ClientFrame(header=self.head(self.out_seq), **ops)
            self.kept.append((self.out_seq, frame))
            self.requests.put(frame)
            return frame

    def send_outside(self, **ops):
        with self.changed:
            self.requests.put(pb.ClientFrame(header=self.head(0), **ops))

    def wait(self, what, name):
        end = time.monotonic() + WAIT_S
        with self.changed:
            while not what():
                left = end - time.monotonic()
                assert left > 0, f"waited {WAIT_S} s for {name} (ended: {self.ended}, fatal: {self.fatal})"
                assert self.welcome is None or not self.ended or name == "the end", \
                    f"the session ended while waiting for {name}: {self.ended} {self.fatal}"
                self.changed.wait(left)

    # -- ops

    def id(self):
        self.next_id += 1
        return self.next_id

    def run(self, name, args, scalars=()):
        task = self.id()
        self.send(tasks=[pb.Task(id=task, function=function(name), args=args, scalars=scalars)])
        return task

    def put(self, data, *dims):
        """A value in pieces of at most 1 MiB; the ref, and the task of each piece."""
        ref, tasks = self.id(), []
        for offset in range(0, len(data), MIB):
            task = self.id()
            arg = pb.Arg(mode=OUT, ref=ref, shape=shape(*dims))
            self.send(tasks=[pb.Task(id=task, kind=PUT, args=[arg], put_offset=offset, data=data[offset:offset + MIB])])
            tasks.append(task)
        return ref, tasks

    def read_value(self, ref, length, view=()):
        """Bytes of a value, by Reads of at most 1 MiB that are all on their way at once."""
        requests = []
        for offset in range(0, length, MIB):
            request = self.id()
            self.send(read=[pb.Read(request=request, ref=ref, view=view, offset=offset, length=min(MIB, length - offset))])
            requests.append(request)
        self.wait(lambda: all(request in self.data for request in requests), "data")
        for request in requests:
            data = self.data[request]
            assert data.status == 0, f"read gave {data.status}: {data.text}"
            assert data.total == length, f"the value has {data.total} bytes, not {length}"
        return b"".join(self.data[request].bytes for request in requests)

    def wait_done(self, *tasks):
        self.wait(lambda: all(task in self.done or task in self.failed for task in tasks), f"tasks {tasks}")
        for task in tasks:
            assert task not in self.failed, f"task {task} failed: {self.failed[task].text}"

    def wait_failed(self, task):
        self.wait(lambda: task in self.done or task in self.failed, f"task {task}")
        assert task in self.failed, f"task {task} did not fail"
        return self.failed[task]


# ---------------------------------------------------------------------------------------------------- claims

def out(ref, *dims):
    return pb.Arg(mode=OUT, ref=ref, shape=shape(*dims))


def claim_health(channel, _):
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    assert check(b"", timeout=WAIT_S, wait_for_ready=True) == b"\x08\x01"
    assert check(b"\x0a\x12plasmon.v1.Plasmon", timeout=WAIT_S) == b"\x08\x01"


def claim_token(channel, token):
    if not token:
        return "the head needs no token"
    try:
        pb_grpc.PlasmonStub(channel).Status(pb.StatusRequest(), timeout=WAIT_S)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNAUTHENTICATED, error
        assert "PLASMON_TOKEN" in error.details(), error
        return None
    raise AssertionError("a call without a token was answered")


def claim_unknown_method(channel, token):
    metadata = [("authorization", "Bearer " + token)] if token else []
    start = time.monotonic()
    try:
        channel.unary_unary("/plasmon.v1.Plasmon/Nothing")(b"", timeout=WAIT_S, metadata=metadata)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error
        assert time.monotonic() - start < WAIT_S / 2
        return
    raise AssertionError("an unknown method was answered")


def claim_welcome(session):
    assert session.welcome.protocol == 1
    assert session.welcome.session != 0 and session.welcome.client != 0
    assert len(session.welcome.devices) >= 1


def claim_fill_and_gemm(session):
    a, b, c = session.id(), session.id(), session.id()
    tasks = [session.run("fill", [out(a, 64, 32)], [f64(2)]), session.run("fill", [out(b, 32, 16)], [f64(3)]),
             session.run("gemm", [out(c, 64, 16), pb.Arg(mode=IN, ref=a), pb.Arg(mode=IN, ref=b)], [f64(0.5), 0, 0])]
    session.wait_done(*tasks)
    values = struct.unpack("<1024f", session.read_value(c, 64 * 16 * 4))
    assert set(values) == {96.0}, values[:8]
    session.refs = a, b, c


def claim_put_and_read(session):
    count = 5 * MIB // 8 + 3  # 2.5 MiB and a bit: three pieces, the last one short
    data = struct.pack(f"<{count}f", *[float(i % 65536) for i in range(count)])
    ref, tasks = session.put(data, count)
    assert len(tasks) == 3
    session.wait_done(*tasks)
    assert session.read_value(ref, len(data)) == data
    part = session.read_value(ref, 4 * 100, view=[7, 100, 3])
    assert struct.unpack("<100f", part) == tuple(float((7 + 3 * i) % 65536) for i in range(100))
    session.send(release=[pb.Range(first=ref, count=1)])
    request = session.id()
    session.send(read=[pb.Read(request=request, ref=ref, length=4)])
    session.wait(lambda: request in session.data, "the answer to a read of a released ref")
    assert session.data[request].status == ERELEASED, session.data[request]


def claim_failures(session):
    ref, after = session.id(), session.id()
    first = session.run("no_such_function", [out(ref, 4)])
    second = session.run("add", [out(after, 4), pb.Arg(mode=IN, ref=ref), pb.Arg(mode=IN, ref=ref)])
    failure = session.wait_failed(first)
    assert failure.status == ENOFUNCTION and failure.text, failure
    failure = session.wait_failed(second)
    assert failure.status == EDEPENDENCY and failure.first_task == first, failure


def claim_ping(session):
    session.send_outside(ping=4711)
    session.wait(lambda: session.pong == 4711, "pong")


def claim_repeats_are_dropped(session):
    ref = session.id()
    task = session.run("fill", [out(ref, 8)], [f64(1)])
    with session.changed:
        again = session.requests
        frame = pb.ClientFrame(header=session.head(session.out_seq),
                               tasks=[pb.Task(id=task, function=function("fill"), args=[out(ref, 8)], scalars=[f64(1)])])
        again.put(frame)
    session.wait_done(task)
    claim_ping_with(session, 4712)  # so that the repeat has been looked at
    assert session.done[task] == 1 and task not in session.failed


def claim_ping_with(session, number):
    session.send_outside(ping=number)
    session.wait(lambda: session.pong == number, "pong")


def claim_resume(session):
    before = session.header.session
    session.call.cancel()
    session.wait(lambda: session.ended, "the end")
    ref = session.id()
    task = session.run("fill", [out(ref, 8)], [f64(7)])  # while there is no connection
    session.connect()
    assert session.header.session == before, "the session was not resumed"
    session.wait_done(task)
    assert struct.unpack("<8f", session.read_value(ref, 32)) == (7.0,) * 8
    values = struct.unpack("<1024f", session.read_value(session.refs[2], 64 * 16 * 4))
    assert set(values) == {96.0}, "a ref from before the break"


def claim_malformed(stub, token):
    session = Session(stub, token)
    session.send(tasks=[pb.Task(id=0, function=function("fill"))])
    session.wait(lambda: session.ended, "the end")
    code, text = session.ended
    text = text or (session.fatal.text if session.fatal else "")
    assert code != grpc.StatusCode.OK or session.fatal, session.ended
    assert "tasks[0]" in text, text


def claim_bye(session):
    session.send(bye=True)
    session.requests.put(None)
    session.wait(lambda: session.ended, "the end")
    assert session.ended[0] == grpc.StatusCode.OK, session.ended


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True, help="unix:/path or host:port of the head")
    parser.add_argument("--token", default=os.environ.get("PLASMON_TOKEN", ""))
    parser.add_argument("--token-file")
    options = parser.parse_args()
    if options.token_file:
        with open(options.token_file, encoding="utf-8") as file:
            options.token = file.read().strip()

    channel = grpc.insecure_channel(options.target, options=[("grpc.enable_http_proxy", 0)])
    stub = pb_grpc.PlasmonStub(channel)
    session = None
    claims = [
        ("health_is_told_to_everyone", lambda: claim_health(channel, options.token)),
        ("a_call_without_the_token_is_refused", lambda: claim_token(channel, options.token)),
        ("an_unknown_method_is_answered_at_once", lambda: claim_unknown_method(channel, options.token)),
        ("hello_gets_a_welcome", lambda: claim_welcome(session)),
        ("fill_and_gemm_give_the_right_numbers", lambda: claim_fill_and_gemm(session)),
        ("what_was_put_is_read_back_until_released", lambda: claim_put_and_read(session)),
        ("failures_have_status_text_and_a_first_task", lambda: claim_failures(session)),
        ("a_ping_is_echoed", lambda: claim_ping(session)),
        ("a_repeated_frame_is_dropped", lambda: claim_repeats_are_dropped(session)),
        ("a_broken_session_resumes", lambda: claim_resume(session)),
        ("a_malformed_frame_is_named", lambda: claim_malformed(stub, options.token)),
        ("bye_ends_the_stream_well", lambda: claim_bye(session)),
    ]
    failures = 0
    print(f"TAP version 13\n1..{len(claims)}")
    for number, (name, claim) in enumerate(claims, 1):
        try:
            if name == "hello_gets_a_welcome":
                session = Session(stub, options.token)
            skipped = claim()
            print(f"ok {number} {name}" + (f" # SKIP {skipped}" if skipped else ""), flush=True)
        except Exception as error:  # a claim that fails does not stop the others
            failures += 1
            print(f"not ok {number} {name}\n# {type(error).__name__}: {error}", flush=True)
    os._exit(1 if failures else 0)  # without waiting for threads of a stream that hangs


if __name__ == "__main__":
    main()
