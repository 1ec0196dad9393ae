//! The addresses of network interfaces, and their byte counters.

use crate::{Error, Result};
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The address of the interface: its first IPv4 address, or its first IPv6 address that is not link-local.
///
/// # Errors
/// [`Error::Interface`]: there is no such interface, or it has no address; the message lists those that have one.
pub fn address(name: &str) -> Result<IpAddr> {
    let all = interface_addresses()?;
    let own = |a: &&(String, IpAddr)| a.0 == name;
    if let Some((_, address)) = all.iter().filter(own).find(|a| a.1.is_ipv4()).or_else(|| all.iter().find(own)) {
        return Ok(*address);
    }
    let others: Vec<String> = all.iter().map(|(name, address)| format!("{name} {address}")).collect();
    let others = if others.is_empty() { "none".into() } else { others.join(", ") };
    Err(Error::Interface(if std::path::Path::new("/sys/class/net").join(name).exists() {
        format!("the interface {name} has no address: is it connected? Interfaces with an address: {others}")
    } else {
        format!("no interface {name} with an address; interfaces with one: {others}")
    }))
}

/// The name of the interface that has the address.
pub fn name_by_address(address: IpAddr) -> Option<String> {
    let same = |one: IpAddr| {
        one == address || matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().map(IpAddr::V4) == Some(one))
    };
    interface_addresses().ok()?.into_iter().find(|(_, one)| same(*one)).map(|(name, _)| name)
}

/// Every address of the interface but link-local IPv6 ones.
///
/// # Errors
/// [`Error::Interface`], as of [`address`].
pub fn addresses(name: &str) -> Result<Vec<IpAddr>> {
    address(name)?;
    Ok(interface_addresses()?.into_iter().filter(|(own, _)| own == name).map(|(_, address)| address).collect())
}

/// The name of the interface of the default route, if there is one (IPv4).
pub fn of_default_route() -> Option<String> {
    default_route(&std::fs::read_to_string("/proc/net/route").ok()?)
}

/// The interface of the route to 0.0.0.0/0 with the lowest metric. Columns: interface, destination, gateway, flags, three
/// counts of which the third is the metric, mask (fib_route_seq_show, net/ipv4/fib_trie.c).
fn default_route(table: &str) -> Option<String> {
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let everywhere = words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000");
        everywhere.then(|| Some((words.get(6)?.parse::<u32>().ok()?, words.first()?.to_string())))?
    };
    table.lines().filter_map(of).min().map(|(_, name)| name)
}

/// Bytes in packets that the interface has received and sent, of all processes.
pub fn byte_counters(name: &str) -> Option<(u64, u64)> {
    // The counters of the caller's network namespace, which those in /sys may not be.
    parse_byte_counters(&std::fs::read_to_string("/proc/thread-self/net/dev").ok()?, name)
}

fn parse_byte_counters(table: &str, name: &str) -> Option<(u64, u64)> {
    let of = |line: &str| {
        let (own, numbers) = line.split_once(':')?;
        let mut numbers = numbers.split_whitespace().map(|n| n.parse().ok());
        // The eight receive counters come first.
        (own.trim() == name).then(|| Some((numbers.next()??, numbers.nth(7)??)))?
    };
    table.lines().find_map(of)
}

/// Interfaces and addresses, in the kernel's order.
fn interface_addresses() -> Result<Vec<(String, IpAddr)>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: `first` is a valid place for the result.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(Error::Io { doing: "list the addresses of this machine", source: std::io::Error::last_os_error() });
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: the C library gave a list that ends with a null pointer and lives until it is freed.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: the name is a C string, and the address, if not null, has the length of its family.
        let named = unsafe {
            sockaddr_ip(entry.ifa_addr).map(|ip| (CStr::from_ptr(entry.ifa_name).to_string_lossy().into_owned(), ip))
        };
        found.extend(named);
    }
    // SAFETY: it is freed once, and nothing points into it any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// # Safety
/// `address` is null, or points to an address with the length of its family.
unsafe fn sockaddr_ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: as the caller promises.
    let family = unsafe { address.as_ref()?.sa_family };
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: the family determines the type; the address may be unaligned.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family determines the type; the address may be unaligned.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            (!ip.is_unicast_link_local()).then_some(ip.into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_counters_are_parsed_from_proc_net_dev() {
        let table = "Inter-| Receive | Transmit\n face |bytes packets\n  lo: 5 1 0 0 0 0 0 0 7 2 0 0 0 0 0 0\n eth0:90 1 0 0 0 0 0 0 80 2 0\n";
        assert_eq!(
            (parse_byte_counters(table, "lo"), parse_byte_counters(table, "eth0")),
            (Some((5, 7)), Some((90, 80)))
        );
        assert_eq!((parse_byte_counters(table, "eth"), parse_byte_counters("lo: x", "lo")), (None, None));
        assert_eq!(name_by_address("127.0.0.1".parse().unwrap()).as_deref(), Some("lo"));
        assert_eq!(name_by_address("::ffff:127.0.0.1".parse().unwrap()).as_deref(), Some("lo"));
        assert!(byte_counters("lo").is_some());
    }

    #[test]
    fn unknown_interface_error_lists_interfaces() {
        assert!(address("lo").unwrap().is_loopback());
        let why = address("nosuch0").unwrap_err().to_string();
        assert!(why.contains("nosuch0") && why.contains("lo 127.0.0.1"), "{why}");
    }
}
