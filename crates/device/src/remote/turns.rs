//! Runs the same task on several devices: concurrently where they share nothing, one after the other where they would
//! disturb each other.

use super::DeviceAddress;

/// Which devices wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concurrency {
    /// None.
    Together,
    /// Those that share this machine's CPUs: itself and its guests.
    ByMachine,
    /// All: one after the other.
    Single,
}

impl Concurrency {
    /// Runs `one` for each device; returns the results in the order of `places`, and `None` if its thread panicked.
    pub fn run_each<'a, T: Send>(
        self,
        places: &'a [DeviceAddress],
        one: impl Fn(&DeviceAddress) -> T + Sync,
    ) -> impl Iterator<Item = (&'a DeviceAddress, Option<T>)> {
        let mut done: Vec<(usize, Option<T>)> = std::thread::scope(|scope| {
            let start = |chain: Vec<(usize, &'a DeviceAddress)>| {
                let one = &one;
                let numbers: Vec<usize> = chain.iter().map(|(at, _)| *at).collect();
                let each = move |(at, place): (usize, &DeviceAddress)| (at, Some(one(place)));
                (numbers, scope.spawn(move || chain.into_iter().map(each).collect::<Vec<_>>()))
            };
            let running: Vec<_> = self.chains(places).into_iter().map(start).collect();
            let ended = running.into_iter().map(|(numbers, thread)| (numbers, thread.join()));
            ended
                .flat_map(|(at, done)| done.unwrap_or_else(|_| at.into_iter().map(|at| (at, None)).collect()))
                .collect()
        });
        done.sort_by_key(|(at, _)| *at);
        places.iter().zip(done.into_iter().map(|(_, done)| done))
    }

    /// Groups the devices into chains: those of one chain run one after the other.
    fn chains(self, places: &[DeviceAddress]) -> Vec<Vec<(usize, &DeviceAddress)>> {
        let numbered = places.iter().enumerate();
        let ours = |place: &DeviceAddress| !matches!(place, DeviceAddress::Adb(_) | DeviceAddress::Ssh(..));
        let waits = |place| match self {
            Self::Together => false,
            Self::ByMachine => ours(place),
            Self::Single => true,
        };
        let (chain, free): (Vec<_>, Vec<_>) = numbered.partition(|(_, place)| waits(place));
        let chains = free.into_iter().map(|one| vec![one]).chain([chain]);
        chains.filter(|chain| !chain.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn places() -> [DeviceAddress; 4] {
        ["adb:A", "local", "lab:scsi-ext4", "ssh:host"].map(|text| text.parse().unwrap())
    }

    #[test]
    fn devices_of_one_machine_take_turns() {
        let places = places();
        let names = |turns: Concurrency| {
            let name = |chain: &Vec<(usize, &DeviceAddress)>| {
                chain.iter().map(|(at, place)| format!("{at}={place}")).collect::<Vec<_>>().join(" ")
            };
            turns.chains(&places).iter().map(name).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(names(Concurrency::Together), "0=adb:A; 1=local; 2=lab:scsi-ext4; 3=ssh:host");
        assert_eq!(names(Concurrency::ByMachine), "0=adb:A; 3=ssh:host; 1=local 2=lab:scsi-ext4");
        assert_eq!(names(Concurrency::Single), "0=adb:A 1=local 2=lab:scsi-ext4 3=ssh:host");
    }

    #[test]
    fn each_device_runs_once_and_panic_costs_its_own_chain() {
        let places = places();
        let ran = AtomicUsize::new(0);
        let one = |place: &DeviceAddress| {
            ran.fetch_add(1, Ordering::Relaxed);
            assert_ne!(*place, DeviceAddress::Local, "the test's own panic");
            place.to_string()
        };
        let done: Vec<_> = Concurrency::Together.run_each(&places, one).map(|(_, done)| done).collect();
        let of = |name: &str| Some(name.to_owned());
        assert_eq!(done, [of("adb:A"), None, of("lab:scsi-ext4"), of("ssh:host")]);
        assert_eq!(ran.load(Ordering::Relaxed), places.len());
    }
}
