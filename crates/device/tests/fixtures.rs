//! The collector on stored devices: directories of files, see `fixtures/README.md`.

use device::{DiskBacking, DiskStat, Disks, Fixture, Local, Reader, collect};
use model::{Dev, Environment};

fn fixture(name: &str) -> Fixture {
    Fixture::new(format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR")))
}

fn format_facts(facts: &Environment) -> String {
    let line = |(name, fact): (&String, &model::Fact)| match (&fact.value, &fact.unknown) {
        (Some(value), None) => {
            format!("{name} = {value}{}", fact.unit.as_ref().map_or(String::new(), |u| format!(" {u}")))
        }
        // The system's error message differs between C libraries.
        (None, Some(why)) => format!("{name}: unknown: {}", why.replace(" (os error 2)", "")),
        other => panic!("{name}: a fact has a value or a reason: {other:?}"),
    };
    facts.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn virtual_machine_with_loop_disk() {
    insta::assert_snapshot!(format_facts(&collect(&fixture("virtual-machine"), Some("/mnt/test disk/bench.db"))));
}

#[test]
fn laptop_with_lvm_on_luks_on_partition() {
    insta::assert_snapshot!(format_facts(&collect(&fixture("laptop"), Some("/home/ada"))));
}

#[test]
fn phone_with_f2fs_on_encrypted_partition() {
    insta::assert_snapshot!(format_facts(&collect(&fixture("phone"), Some("/data/local/tmp"))));
}

fn stack_names(disks: &Disks, reader: &dyn Reader, path: &str) -> Vec<String> {
    let Some(top) = disks.of_path(reader, path) else { return Vec::new() };
    disks.stack(reader, top).iter().map(|d| d.name.clone()).collect()
}

#[test]
fn path_is_resolved_down_to_its_device() {
    let laptop = fixture("laptop");
    let disks = Disks::read(&laptop).unwrap();
    assert_eq!(stack_names(&disks, &laptop, "/home/ada"), ["dm-1", "dm-0", "nvme0n1"]);
    assert_eq!(stack_names(&disks, &laptop, "/boot/grub"), ["nvme0n1"], "a partition stands for its disk");
    assert_eq!(stack_names(&disks, &laptop, "/bootstrap"), ["dm-1", "dm-0", "nvme0n1"], "not below /boot");
    assert_eq!(stack_names(&disks, &laptop, "/mnt/pool/x"), ["sda"], "btrfs is found by its source");
    let container = "/var/lib/docker/overlay2/x/merged/data";
    assert_eq!(stack_names(&disks, &laptop, container), ["dm-1", "dm-0", "nvme0n1"], "an overlay is where it writes");
    assert_eq!(stack_names(&disks, &laptop, "/sys/block"), Vec::<String>::new());
    assert_eq!(stack_names(&disks, &laptop, "relative"), Vec::<String>::new());

    let machine = fixture("virtual-machine");
    let disks = Disks::read(&machine).unwrap();
    assert_eq!(
        stack_names(&disks, &machine, "/mnt/test disk"),
        ["loop0", "vda"],
        "a loop disk stands on its file's disk"
    );
    let below = &disks.by_name("loop0").unwrap().below;
    let identity = Some((Dev::new(254, 0), 9_977_969));
    assert_eq!(*below, DiskBacking::File { path: "/var/tmp/disk.img".into(), identity });
}

#[test]
fn partitions_and_disk_rows_are_listed() {
    let laptop = fixture("laptop");
    let disks = Disks::read(&laptop).unwrap();
    let nvme = Dev::new(259, 0);
    let partitions = disks.partitions();
    assert_eq!(partitions.get(&Dev::new(259, 3)), Some(&nvme));
    assert_eq!(partitions.len(), 4);
    assert_eq!(disks.by_name("/dev/mapper/vg-root").map(|d| d.name.as_str()), Some("dm-1"));
    assert_eq!(disks.by_name("nvme0n1p1").map(|d| d.dev), Some(nvme));
    let rows = disks.rows(Some(Dev::new(253, 1)));
    let shown: Vec<_> = rows.iter().map(|r| (r.name.as_str(), r.below.as_str(), r.holds_files)).collect();
    assert_eq!(shown, [("sda", "", false), ("dm-0", "nvme0n1", false), ("dm-1", "dm-0", true), ("nvme0n1", "", false)]);
}

#[test]
fn disk_statistics_are_read_by_name() {
    let stat = DiskStat::read(&fixture("laptop"), "nvme0n1").unwrap();
    assert_eq!((stat.writes, stat.flushes), (1_523_321, 192_333));
    let old = DiskStat::read(&fixture("phone"), "mmcblk0").unwrap();
    assert_eq!((old.discard_ms, old.flushes), (15, 0));
    assert!(DiskStat::read(&fixture("phone"), "sdz").is_err_and(|why| why.contains("sdz")));
}

/// Two disks that claim to be stacked on each other: impossible in a kernel, possible in a damaged fixture.
#[test]
fn cyclic_disk_stack_terminates() {
    struct Circle;
    impl Reader for Circle {
        fn read(&self, path: &str) -> Result<String, String> {
            match path {
                "/sys/block/a/dev" => Ok("1:0".into()),
                "/sys/block/b/dev" => Ok("2:0".into()),
                _ => Err("absent".into()),
            }
        }
        fn list(&self, directory: &str) -> Result<Vec<String>, String> {
            match directory {
                "/sys/block" => Ok(vec!["a".into(), "b".into()]),
                "/sys/block/a/slaves" => Ok(vec!["b".into()]),
                "/sys/block/b/slaves" => Ok(vec!["a".into()]),
                _ => Err("absent".into()),
            }
        }
        fn run(&self, _: &[&str]) -> Result<String, device::RunError> {
            Err(device::RunError::Failed("absent".into()))
        }
        fn canonical(&self, path: &str) -> Result<String, String> {
            Ok(path.into())
        }
        fn identity(&self, _: &str) -> Result<(Dev, u64), String> {
            Err("absent".into())
        }
    }
    let disks = Disks::read(&Circle).unwrap();
    assert_eq!(disks.stack(&Circle, disks.by_name("a").unwrap()).len(), 2);
    // With almost nothing to read, every fact contains the reason why it is unknown.
    let facts = collect(&Circle, Some("/x"));
    assert!(facts.len() > 30 && facts.values().filter(|f| f.value.is_some()).count() == 0, "{}", format_facts(&facts));
}

/// The facts common to all Linux machines must be known on this machine.
#[test]
fn basic_facts_of_this_machine_are_known() {
    let facts = collect(&Local, Some("/"));
    for name in ["kernel.release", "cpu.architecture", "cpu.online", "memory.total", "fs.type"] {
        assert!(facts[name].value.is_some(), "{}", format_facts(&facts));
    }
}
