//! [`OwnAddresses`]: whether an address is this machine's.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use parking_lot::Mutex;

/// The maximum of addresses of which is known whether they are this machine's.
const ADDRESSES_MAX: usize = 4096;

/// How long that is known: a machine may get or lose an address.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// The addresses that were asked for.
#[derive(Debug, Default)]
pub(crate) struct OwnAddresses {
    known: Mutex<HashMap<IpAddr, (bool, Instant)>>,
}

impl OwnAddresses {
    /// Returns true if an address is this machine's: if a socket can be bound to it.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.contains_at(address, clock::monotonic(), |address| UdpSocket::bind((address, 0)).map(drop))
    }

    fn contains_at(
        &self,
        address: IpAddr,
        now: Instant,
        bind: impl FnOnce(IpAddr) -> io::Result<()>,
    ) -> bool {
        if address.is_loopback() {
            return true;
        }
        if let Some((is_own, at)) = self.known.lock().get(&address)
            && now.saturating_duration_since(*at) < KNOWN_FOR
        {
            return *is_own;
        }
        let is_own = match bind(address) {
            Ok(()) => true,
            Err(e) if e.kind() == ErrorKind::AddrNotAvailable => false,
            // Such as too many open files. The next read tries again.
            Err(_) => return false,
        };
        let mut known = self.known.lock();
        if known.len() >= ADDRESSES_MAX {
            known.clear();
        }
        known.insert(address, (is_own, now));
        is_own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_are_its_own() {
        let own = OwnAddresses::default();
        let contains = |address: &str| own.contains(address.parse().expect("an address"));
        assert!(contains("127.0.0.1") && contains("::1"));
        assert!(!contains("192.0.2.1") && !contains("2001:db8::1"));
    }

    #[test]
    fn a_result_is_known_for_a_while_unless_the_attempt_failed() {
        let (own, start) = (OwnAddresses::default(), Instant::now());
        let address = IpAddr::from([192, 0, 2, 1]);
        let contains = |seconds: u64, result: Result<(), ErrorKind>| {
            let (mut asked, now) = (false, start + Duration::from_secs(seconds));
            let found = own.contains_at(address, now, |_| {
                asked = true;
                result.map_err(io::Error::from)
            });
            (found, asked)
        };
        assert_eq!(contains(0, Err(ErrorKind::OutOfMemory)), (false, true));
        assert_eq!(contains(0, Ok(())), (true, true), "the failure says nothing");
        assert_eq!(contains(59, Err(ErrorKind::AddrNotAvailable)), (true, false));
        assert_eq!(contains(60, Err(ErrorKind::AddrNotAvailable)), (false, true));
        assert_eq!(contains(119, Ok(())), (false, false));
        assert_eq!(contains(120, Ok(())), (true, true));
    }
}
