//! Validation of requests before they reach the store.
//!
//! Everything that a store would have to check is checked here once: the command and its flags, the range, the block size.
//! The protocol defines the error of each fault: ENOSPC for a write beyond the end, EPERM for one to a read-only export,
//! EINVAL for the rest.

use crate::export::{Error, Info, PAYLOAD_BYTES_MAX};
use crate::wire::{Request, command, flag};

/// Checks whether the request may be executed.
pub fn check_request(request: &Request, export: &Info, structured: bool, block_status: bool) -> Result<(), Error> {
    let modifies = [command::WRITE, command::WRITE_ZEROES, command::TRIM].contains(&request.command);
    let allowed = match request.command {
        // FUA has no meaning for these, but the protocol permits it everywhere.
        command::READ => flag::FUA | if structured { flag::DF } else { 0 },
        command::WRITE | command::TRIM | command::FLUSH | command::CACHE => flag::FUA,
        command::WRITE_ZEROES => flag::FUA | flag::NO_HOLE | if export.fast_zero { flag::FAST_ZERO } else { 0 },
        command::BLOCK_STATUS if block_status => flag::FUA | flag::REQ_ONE,
        _ => return Err(Error::Invalid),
    };
    if request.flags & !allowed != 0 {
        return Err(Error::Invalid);
    }
    if request.command == command::FLUSH {
        return Ok(());
    }
    if modifies && export.read_only {
        return Err(Error::Permission);
    }
    let transfers_data = [command::READ, command::WRITE].contains(&request.command);
    if request.length == 0 || (transfers_data && request.length > PAYLOAD_BYTES_MAX) {
        return Err(Error::Invalid);
    }
    let end = request.offset.checked_add(u64::from(request.length));
    if end.is_none_or(|end| end > export.size_bytes) {
        let writes_data = [command::WRITE, command::WRITE_ZEROES].contains(&request.command);
        return Err(if writes_data { Error::NoSpace } else { Error::Invalid });
    }
    let block = u64::from(export.block_min_bytes);
    if !request.offset.is_multiple_of(block) || !u64::from(request.length).is_multiple_of(block) {
        return Err(Error::Invalid);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(command: u16, flags: u16, offset: u64, length: u32) -> Request {
        Request { flags, command, cookie: 0, offset, length }
    }

    #[test]
    fn invalid_requests_have_documented_errors() {
        let disk = Info { block_min_bytes: 512, ..Info::disk(1 << 20) };
        let ask = |r: Request| check_request(&r, &disk, true, false);
        assert_eq!(ask(request(command::READ, flag::DF, 0, 512)), Ok(()));
        assert_eq!(ask(request(command::FLUSH, 0, 0, 0)), Ok(()));
        assert_eq!(ask(request(command::WRITE, flag::FUA, (1 << 20) - 512, 512)), Ok(()));
        assert_eq!(ask(request(command::WRITE, 0, (1 << 20) - 512, 1024)), Err(Error::NoSpace));
        assert_eq!(ask(request(command::READ, 0, u64::MAX, 512)), Err(Error::Invalid));
        assert_eq!(ask(request(command::READ, 0, 0, 0)), Err(Error::Invalid));
        assert_eq!(ask(request(command::READ, 0, 0, 100)), Err(Error::Invalid));
        assert_eq!(ask(request(command::READ, flag::NO_HOLE, 0, 512)), Err(Error::Invalid));
        assert_eq!(ask(request(command::BLOCK_STATUS, 0, 0, 512)), Err(Error::Invalid));
        assert_eq!(ask(request(77, 0, 0, 512)), Err(Error::Invalid));
    }

    #[test]
    fn fast_zero_is_refused_where_it_is_not_offered() {
        let zero = request(command::WRITE_ZEROES, flag::FAST_ZERO, 0, 512);
        for (fast_zero, expected) in [(true, Ok(())), (false, Err(Error::Invalid))] {
            let disk = Info { fast_zero, ..Info::disk(1 << 20) };
            assert_eq!(check_request(&zero, &disk, true, false), expected, "fast: {fast_zero}");
        }
    }

    #[test]
    fn length_limit_applies_only_to_the_payload() {
        let disk = Info::disk(1 << 40);
        assert_eq!(check_request(&request(command::TRIM, 0, 0, u32::MAX), &disk, false, false), Ok(()));
        assert_eq!(
            check_request(&request(command::READ, 0, 0, PAYLOAD_BYTES_MAX + 1), &disk, false, false),
            Err(Error::Invalid)
        );
    }

    #[test]
    fn read_only_export_refuses_writes() {
        let disk = Info { read_only: true, ..Info::disk(4096) };
        for command in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
            assert_eq!(check_request(&request(command, 0, 0, 512), &disk, false, false), Err(Error::Permission));
        }
    }
}
