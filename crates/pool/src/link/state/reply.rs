//! What a reply means for its request.

use crate::frame::{BadBlock, FrameError, Operation, Reply, Request, Status, Stretch};
use bytes::Bytes;

/// The result of a reply; data that does not match its checksum was corrupted in transit. An error may come with the
/// offset of its cause.
pub(super) fn check_reply(
    request: &Request,
    reply: &Reply,
    data: Bytes,
) -> Result<Result<Bytes, (Status, Option<u64>)>, FrameError> {
    if reply.status != Status::Done {
        return Ok(Err((reply.status, data.first_chunk().map(|offset| u64::from_le_bytes(*offset)))));
    }
    let fits = match request.operation {
        Operation::Read => data.len() == request.length as usize,
        Operation::Map => Stretch::parse_all(&data, request.length).is_some(),
        Operation::Verify => BadBlock::parse_all(&data).is_some(),
        Operation::Write | Operation::Flush | Operation::Trim => data.is_empty(),
    };
    if !fits {
        return Err(FrameError::Invalid("an answer has a different length than requested"));
    }
    // Data in shared memory was not transmitted.
    if !data.is_empty() && !request.unchecked && !reply.placed && crc32c::crc32c(&data) != reply.checksum {
        return Err(FrameError::Checksum);
    }
    Ok(Ok(data))
}
