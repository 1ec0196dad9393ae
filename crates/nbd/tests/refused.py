# Writes that must fail, through libnbd: each has its error, and the connection stays usable. A client that receives the response before
# it has sent its payload closes the connection ("no matching cookie found for server reply").
#
# CLEAR and READ_ONLY are the URIs of a disk of 64 MiB and of a read-only disk.
import errno, nbd, os

def refused(name, wanted, call):
    try:
        call()
    except nbd.Error as error:
        assert error.errnum == wanted, f"{name}: {error}, not {errno.errorcode[wanted]}"
        return
    raise SystemExit(f"{name}: was not refused")

size, long = 64 << 20, bytes(8 << 20)
for structured in (True, False):
    def connected(uri):
        handle = nbd.NBD()
        handle.set_strict_mode(0)
        handle.set_request_structured_replies(structured)
        handle.connect_uri(uri)
        return handle

    h = connected(os.environ["CLEAR"])
    h.pwrite(b"kept" * 1024, 0)
    for name, wanted, call in [
        ("beyond the end", errno.ENOSPC, lambda: h.pwrite(long, size - 4096)),
        ("far beyond the end", errno.ENOSPC, lambda: h.pwrite(long, 1 << 62)),
        ("longer than is allowed", errno.EINVAL, lambda: h.pwrite(bytes(40 << 20), 0)),
        ("flags that mean nothing", errno.EINVAL, lambda: h.pwrite(long, 0, 1 << 10)),
        ("a short one", errno.ENOSPC, lambda: h.pwrite(b"x", size)),
        ("zeroes beyond the end", errno.ENOSPC, lambda: h.zero(4096, size)),
        ("a read beyond the end", errno.EINVAL, lambda: h.pread(4096, size)),
        ("a trim beyond the end", errno.EINVAL, lambda: h.trim(4096, size)),
    ]:
        refused(name, wanted, call)
        assert h.pread(4096, 0) == b"kept" * 1024, name
    # Failing writes among others, all in flight at once.
    data = nbd.Buffer.from_bytearray(bytearray(b"7" * (1 << 20)))
    under_way = [(h.aio_pwrite(data, size - 4096 if nth % 2 else nth << 20), nth % 2) for nth in range(40)]
    for cookie, wrong in under_way:
        while True:
            try:
                if h.aio_command_completed(cookie):
                    break
            except nbd.Error as error:
                assert wrong and error.errnum == errno.ENOSPC, error
                break
            h.poll(-1)
    assert h.pread(1 << 20, 38 << 20) == b"7" * (1 << 20)
    h.shutdown()
    h = connected(os.environ["READ_ONLY"])
    refused("a write where nothing may be written", errno.EPERM, lambda: h.pwrite(long, 0))
    assert h.pread(4096, 0) == bytes(4096)
    h.shutdown()
