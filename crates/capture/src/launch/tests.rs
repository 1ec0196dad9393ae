//! Real children. Their behaviour is read from files that they write, so that no test depends on time.

use super::*;
use std::fs;

fn words(all: &[&str]) -> Vec<OsString> {
    all.iter().map(OsString::from).collect()
}

fn shell(script: &str) -> Command<'static> {
    Command::new(&words(&["sh", "-c", script])).unwrap()
}

/// Runs a script that writes to `$OUT`, and returns its output.
fn output(prepare: impl FnOnce(Command<'static>) -> Command<'static>, script: &str) -> String {
    let out = tempfile::NamedTempFile::new().unwrap();
    fs::set_permissions(out.path(), fs::Permissions::from_mode(0o666)).unwrap();
    let mut child = prepare(shell(script)).env("OUT", out.path().as_os_str()).spawn().unwrap();
    child.release().unwrap();
    assert_eq!(child.wait().unwrap(), Exit::Code(0));
    fs::read_to_string(out.path()).unwrap()
}

#[test]
fn command_does_not_run_before_release() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ran");
    let mut child = shell("echo $$ > \"$OUT\"; exit 7").env("OUT", file.as_os_str()).spawn().unwrap();
    // It is still this program: the command has not run.
    let exe = fs::read_link(format!("/proc/{}/exe", child.pid())).unwrap();
    assert_eq!(exe, std::env::current_exe().unwrap());
    assert_eq!(child.try_wait().unwrap(), None);
    assert!(!file.exists());
    child.release().unwrap();
    assert_eq!(child.wait().unwrap(), Exit::Code(7));
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), child.pid().to_string());
    assert_eq!(child.try_wait().unwrap(), Some(Exit::Code(7)), "the answer stays");
}

/// The recorder's death closes its end of the gate. A second child, forked while the first one's gate was open, must not
/// keep it open.
#[test]
fn command_is_not_run_if_recorder_dies() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ran");
    let mut first = shell("touch \"$OUT\"").env("OUT", file.as_os_str()).spawn().unwrap();
    let second = shell("exit 0").spawn().unwrap();
    drop(first.gate.take());
    assert_eq!(first.wait().unwrap(), Exit::Code(NOT_RUN_STATUS));
    assert!(!file.exists());
    drop(second);
}

#[test]
fn dropped_unreleased_child_is_killed() {
    let child = shell("exit 0").spawn().unwrap();
    let pid = child.pid();
    drop(child);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn running_command_survives_drop() {
    let directory = tempfile::tempdir().unwrap();
    let (fifo, file) = (directory.path().join("fifo"), directory.path().join("done"));
    let script = "read line < \"$FIFO\"; echo \"$line\" > \"$OUT\"";
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut child = shell(script).env("OUT", file.as_os_str()).env("FIFO", fifo.as_os_str()).spawn().unwrap();
    child.release().unwrap();
    let pid = child.pid;
    drop(child);
    // It can only answer if it is still running.
    fs::write(&fifo, "alive\n").unwrap();
    let mut status = 0;
    // SAFETY: waits for a child of this process that was not waited for.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(fs::read_to_string(&file).unwrap(), "alive\n");
}

#[test]
fn exit_statuses_match_shell() {
    let mut child = shell("kill -TERM $$").spawn().unwrap();
    child.release().unwrap();
    let exit = child.wait().unwrap();
    assert_eq!((exit, exit.status()), (Exit::Signal(libc::SIGTERM), 143));
    let mut child = Command::new(&words(&["sleep", "600"])).unwrap().spawn().unwrap();
    child.release().unwrap();
    child.signal(libc::SIGKILL).unwrap();
    assert_eq!(child.wait().unwrap(), Exit::Signal(libc::SIGKILL));
    child.signal(libc::SIGKILL).unwrap();
}

#[test]
fn unrunnable_commands_have_shell_exit_status() {
    let directory = tempfile::tempdir().unwrap();
    let make = |name: &str, text: &str, mode: u32| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.into_os_string()
    };
    let error = |program: OsString| match Command::new(&[program]) {
        Ok(command) => command.spawn().unwrap().release().unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error("no-such-command-at-all".into()).exit_code(), 127);
    assert_eq!(error("/no/such/file".into()).exit_code(), 127);
    assert_eq!(error("".into()).exit_code(), 127);
    assert_eq!(error("/".into()).exit_code(), 126);
    assert_eq!(error(make("data", "x", 0o644)).exit_code(), 126);
    let orphan = error(make("orphan", "#!/no/such/interpreter\n", 0o755));
    assert_eq!(orphan.exit_code(), 126);
    assert!(orphan.to_string().contains("interpreter"), "{orphan}");
    assert_eq!(error("a\0b".into()).exit_code(), 127, "no file has such a name");
    assert!(Command::new(&[]).is_err());
}

#[test]
fn script_without_shebang_runs_in_shell() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plain");
    lab::script::write(&path, "exit $1\n").unwrap();
    let mut child = Command::new(&[path.into_os_string(), "9".into()]).unwrap().spawn().unwrap();
    child.release().unwrap();
    assert_eq!(child.wait().unwrap(), Exit::Code(9));
}

#[test]
fn child_killed_before_release_is_an_error() {
    let mut child = shell("exit 0").spawn().unwrap();
    child.signal(libc::SIGKILL).unwrap();
    child.exit = None;
    // Its end of the gate is closed only when it has ended.
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: waits for a child of this process without taking its status; the structure is valid memory.
    unsafe { libc::waitid(libc::P_PID, child.pid(), info.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT) };
    // A test that forks at this moment holds the gate's other end until its exec, so the write may succeed.
    let released = child.release();
    assert!(matches!(released, Ok(()) | Err(LaunchError::System { .. })), "{released:?}");
    assert_eq!(child.wait().unwrap(), Exit::Signal(libc::SIGKILL));
}

/// The same descriptors, signals and group as a child of the standard library; with marks, one more descriptor.
#[test]
fn command_inherits_only_standard_descriptors() {
    const LISTING_SCRIPT: &str = "for f in /proc/self/fd/*; do readlink $f; done | grep -v /fd > \"$OUT\"; \
                          grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status >> \"$OUT\"; cut -d' ' -f5 /proc/self/stat >> \"$OUT\"";
    let ours = output(|c| c, LISTING_SCRIPT);
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut std = std::process::Command::new("sh");
    assert!(std.args(["-c", LISTING_SCRIPT]).env("OUT", file.path()).status().unwrap().success());
    // The standard library uses posix_spawn, in which glibc ignores the two signals (32 and 33) that it reserves.
    let signals = |line: &str| match line.split_once(":\t") {
        Some((name, mask)) => format!("{name} {:x}", u64::from_str_radix(mask, 16).unwrap() & !(3 << 31)),
        None => line.to_owned(),
    };
    let normal = |text: &str| {
        let lines = text.lines().filter(|l| !l.starts_with("pipe:") && !l.contains(".tmp"));
        lines.map(signals).collect::<Vec<_>>()
    };
    assert_eq!(normal(&ours), normal(&fs::read_to_string(file.path()).unwrap()));

    let marks: &'static marks::Marks = Box::leak(Box::new(marks::Marks::create(1).unwrap()));
    let seen = output(|c| c.marks(marks.fd()), "readlink /proc/self/fd/$FATHOM_MARKS_FD > \"$OUT\"");
    assert!(seen.starts_with("/memfd:fathom-marks"), "{seen}");
}

const PASSWD_TEXT: &str = "root:x:0:0:root:/root:/bin/bash\nada:x:1000:1000:Ada,,,:/home/ada:/bin/zsh\nbroken\n";
const GROUP_TEXT: &str = "root:x:0:\ndisk:x:6:bob,ada\nadam:x:9:adam\nada:x:1000:\nbroken:x:ada\nwheel:x:10:ada\n";

#[test]
fn user_is_read_from_passwd_and_group() {
    let ada = User::from_files(1000, 1000, PASSWD_TEXT, GROUP_TEXT);
    assert_eq!((ada.name.as_str(), ada.home.as_path()), ("ada", Path::new("/home/ada")));
    assert_eq!(ada.groups, [1000, 6, 10]);
    assert_eq!(ada.shell, Some("/bin/zsh".into()));
    // A user known only to a directory service.
    let other = User::from_files(5000, 5001, PASSWD_TEXT, GROUP_TEXT);
    assert_eq!((other.name.as_str(), other.home.as_path()), ("5000", Path::new("/")));
    assert_eq!((other.groups, other.shell), (vec![5001], None));
}

#[test]
fn environment_is_that_of_user() {
    let ada = User::from_files(1000, 1000, PASSWD_TEXT, GROUP_TEXT);
    let command = shell("true").env("SUDO_UID", OsStr::new("1000")).as_user(ada);
    let get = |name: &str| command.environment.get(OsStr::new(name)).and_then(|v| v.to_str());
    assert_eq!(get("HOME"), Some("/home/ada"));
    assert_eq!((get("USER"), get("LOGNAME"), get("SHELL")), (Some("ada"), Some("ada"), Some("/bin/zsh")));
    assert_eq!(get("SUDO_UID"), None);
}

#[test]
#[ignore = "root: becomes another user"]
fn command_runs_as_user() {
    let mut user = User::from_files(64_123, 64_124, "", "");
    user.groups.push(64_125);
    let script = "{ id -u; id -g; id -G; echo $HOME; grep ^CapEff /proc/self/status; } > \"$OUT\"";
    let seen = output(|c| c.as_user(user), script);
    assert_eq!(seen, "64123\n64124\n64124 64125\n/\nCapEff:\t0000000000000000\n");
}

/// Returns a statically linked shell, if there is one.
fn static_shell() -> Option<PathBuf> {
    let busybox = resolve_program(OsStr::new("busybox"), None).ok()?;
    crate::sqlite::program_loader(&busybox).is_none().then_some(busybox)
}

/// Follows a script run by that shell, in which `$B` is the shell. Returns the paths of the programs met, and the exit.
fn follow_script(shell: &Path, script: &str) -> (Vec<PathBuf>, Exit) {
    let command = Command::new(&[shell.as_os_str().to_owned(), "sh".into(), "-c".into(), script.into()]).unwrap();
    let mut child = command.env("B", shell.as_os_str()).spawn().unwrap();
    let mut follower = child.release_followed(|_| Ok(())).unwrap().unwrap();
    let (mut programs, mut exit) = (Vec::new(), None);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    // What the command leaves running ends when its own pipe does.
    while exit.is_none() || !follower.has_ended() {
        assert!(std::time::Instant::now() < until, "{programs:?} {exit:?}");
        while let Some(met) = follower.next_exec() {
            let (path, _) = met.program().unwrap();
            if path == shell {
                met.follow();
            } else {
                met.implant().unwrap();
            }
            programs.push(path);
        }
        exit = exit.or(child.try_wait().unwrap());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    (programs, exit.unwrap())
}

#[test]
fn followed_shell_is_met_at_each_exec_of_its_processes() {
    const TEST_NAME: &str = "followed_shell_is_met_at_each_exec_of_its_processes";
    let Some(shell) = static_shell() else { return println!("SKIP {TEST_NAME}: there is no static busybox") };
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    let met = |script: &str| {
        let (programs, exit) = follow_script(&shell, script);
        let mut names: Vec<String> = programs.iter().map(name).collect();
        names.sort();
        (names.join(" "), exit)
    };
    let own = shell.canonicalize().map(|path| name(&path)).unwrap();
    let true_ = name(&PathBuf::from("/bin/true").canonicalize().unwrap());
    let all = |shells: usize, others: usize| {
        let mut names = [vec![&*own; shells], vec![&*true_; others]].concat();
        names.sort_unstable();
        names.join(" ")
    };
    // In sequence, in the background, in a pipe, in a nested shell, and as a replacement of itself.
    let script = "/bin/true; /bin/true & wait; /bin/true | /bin/true; \"$B\" sh -c '/bin/true; exit 0'; exec \"$B\" sh -c 'exit 7'";
    assert_eq!(met(script), (all(3, 5), Exit::Code(7)));
    // A signal that it handles, and one that cannot be handled, after which its child continues.
    assert_eq!(met("trap 'exit 3' TERM; kill -TERM $$; /bin/true"), (all(1, 0), Exit::Code(3)));
    assert_eq!(
        met("(while kill -0 $$; do :; done; /bin/true) 2>/dev/null & kill -KILL $$"),
        (all(1, 1), Exit::Signal(9))
    );
    assert_eq!(met("(kill -STOP $$; kill -CONT $$) & /bin/true; wait; exit 4").1, Exit::Code(4));
}
