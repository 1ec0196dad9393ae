//! Names of stores, coordinators, shared memory and sessions.

/// A unique name: 16 random hexadecimal digits.
pub fn new_name() -> String {
    let mut bytes = [0; 8];
    // getrandom never returns such a short request partially; without a random generator the time makes the name unique.
    if rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()).is_err() {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        bytes = (now.as_nanos() as u64).to_le_bytes();
    }
    format!("{:016x}", u64::from_le_bytes(bytes))
}
