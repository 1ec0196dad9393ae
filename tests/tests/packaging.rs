//! What `packaging/make` makes of the built program: the installer, the wheel, the image, the lists of the apt repository, the recipes.
//! Each is tried by what will read it: sh, pip, a root of its own, apt.

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, fathom, installed, run, run_suite};
use serde_json::Value;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// The user that installs where the tests run as root: nobody.
const USER: u32 = 65534;

const ARCHITECTURE: &str = std::env::consts::ARCH;

fn main() -> ExitCode {
    let tools =
        || ["python3", "dpkg-deb", "tar", "gzip", "sha256sum"].into_iter().try_for_each(installed).and(released());
    let download = || tools().and(installed("curl").or_else(|_| installed("wget")));
    let cases: Vec<Case> = vec![
        ("installer_needs_no_root_and_uninstalls", tools(), installer_needs_no_root_and_uninstalls),
        ("installer_rejects_wrong_checksum", tools(), installer_rejects_wrong_checksum),
        ("installer_removes_program_that_does_not_run", tools(), installer_removes_program_that_does_not_run),
        ("installer_without_network_leaves_nothing", download(), installer_without_network_leaves_nothing),
        ("installer_names_directory_without_permission", tools(), installer_names_directory_without_permission),
        ("wheel_runs_in_virtual_environment", tools().and(environments()), wheel_runs_in_virtual_environment),
        ("image_runs_in_empty_root", tools().and(roots()), image_runs_in_empty_root),
        ("apt_downloads_the_package", tools().and(installed("apt-get")), apt_downloads_the_package),
        ("recipes_have_the_archives_checksum", tools(), recipes_have_the_archives_checksum),
        ("packages_are_the_same_bytes_each_time", tools(), packages_are_the_same_bytes_each_time),
        ("missing_archive_is_an_error", tools(), missing_archive_is_an_error),
    ];
    run_suite(cases)
}

/// Whether the program is released for this machine.
fn released() -> Result<(), String> {
    ["x86_64", "aarch64"].contains(&ARCHITECTURE).then_some(()).ok_or_else(|| format!("no release for {ARCHITECTURE}"))
}

/// Whether Python can make an environment with pip.
fn environments() -> Result<(), String> {
    let import = Command::new("python3").args(["-c", "import ensurepip, venv"]).stderr(Stdio::null()).status();
    import.is_ok_and(|status| status.success()).then_some(()).ok_or_else(|| "python3-venv is not installed".into())
}

/// Whether a program can be run in another root.
fn roots() -> Result<(), String> {
    lab::privilege::mounts().map_err(|why| why.to_string()).and(installed("chroot"))
}

fn packaging(script: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(script))
}

/// Where the packages are made: below target/, and anew in each run.
fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("packaging").join(name)
}

/// The directory of the packages, which are made once.
fn packages() -> Result<&'static Path> {
    static MADE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let dist = directory("dist");
        let stand_in = || -> Result<PathBuf> {
            if dist.exists() {
                std::fs::remove_dir_all(&dist)?;
            }
            let target = format!("{ARCHITECTURE}-unknown-linux-musl");
            run(packaging("stand-in").arg(fathom()).arg(&dist).env("TARGET", target).env_remove("RUN"))?;
            let packages = directory("packages");
            make(&packages)?;
            Ok(packages)
        };
        stand_in().map_err(|error| format!("{error:#}"))
    });
    made.as_deref().map_err(|error| anyhow::Error::msg(error.clone()))
}

/// Makes the packages of the stand-in in a directory.
fn make(output: &Path) -> Result<()> {
    run(packaging("make").arg("--dist").arg(directory("dist")).arg("--output").arg(output))?;
    Ok(())
}

/// The one file of a directory whose name has this beginning and end.
fn only(directory: &Path, begin: &str, end: &str) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(begin) && name.ends_with(end) {
            found.push(directory.join(name));
        }
    }
    ensure!(found.len() == 1, "{begin}…{end}: {found:?}");
    found.pop().context("one file")
}

fn archive(packages: &Path) -> Result<PathBuf> {
    only(packages, "fathom-", ".tar.gz")
}

/// A copy of what a release's page has for the installer, and an empty home, both of an ordinary user.
struct Site {
    directory: TempDir,
}

impl Site {
    fn new() -> Result<Self> {
        let site = Self { directory: tempfile::tempdir()? };
        let packages = packages()?;
        for path in [site.page(), site.home()] {
            std::fs::create_dir(path)?;
        }
        let files = [packages.join("install.sh"), packages.join("SHA256SUMS"), archive(packages)?];
        for file in &files {
            std::fs::copy(file, site.page().join(file.file_name().context("a name")?))?;
        }
        if is_root() {
            for path in [site.directory.path().to_path_buf(), site.home()] {
                chown(path, Some(USER), Some(USER))?;
            }
        }
        Ok(site)
    }

    fn page(&self) -> PathBuf {
        self.directory.path().join("page")
    }

    fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    fn installed(&self) -> PathBuf {
        self.home().join(".local/bin/fathom")
    }

    /// The installer's command, as an ordinary user.
    fn installer(&self) -> Command {
        let mut installer = Command::new("sh");
        installer.arg(self.page().join("install.sh")).current_dir(self.home()).env("HOME", self.home());
        // Its download must be removed, too.
        installer.env("TMPDIR", self.home());
        installer.env("FATHOM_BASE", format!("file://{}", self.page().to_string_lossy()));
        installer.env_remove("PREFIX").env_remove("FATHOM_MINISIGN_KEY");
        if is_root() {
            installer.uid(USER).gid(USER);
        }
        installer
    }

    /// Everything below the home that is no directory.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let found = run(Command::new("find").arg(self.home()).args(["!", "-type", "d"]))?;
        Ok(String::from_utf8(found.stdout)?.lines().map(PathBuf::from).collect())
    }

    /// Runs an installer that must fail, with these words, and leave nothing: neither files nor directories.
    fn refuses(&self, installer: &mut Command, words: &str) -> Result<()> {
        let output = installer.stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1) && said.contains(words), "{}: {said}", output.status);
        let left: Vec<_> = std::fs::read_dir(self.home())?.collect();
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    }

    /// Writes the checksum of the page's archive.
    fn sum_archive(&self) -> Result<()> {
        let archive = archive(&self.page())?;
        let name = archive.file_name().context("a name")?;
        let sum = run(Command::new("sha256sum").arg(name).current_dir(self.page()))?;
        Ok(std::fs::write(self.page().join("SHA256SUMS"), sum.stdout)?)
    }
}

fn is_root() -> bool {
    // SAFETY: geteuid only returns a number.
    unsafe { libc::geteuid() == 0 }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn installer_needs_no_root_and_uninstalls() -> Result<()> {
    let site = Site::new()?;
    // The second run replaces what the first installed.
    for _ in 0..2 {
        let said = text(&run(&mut site.installer())?);
        ensure!(said.contains("is installed") && said.contains("Recording needs root"), "{said}");
        let version = |program: &Path| run(Command::new(program).arg("--version"));
        ensure!(version(&site.installed())?.stdout == version(&fathom())?.stdout);
        let files = site.files()?;
        ensure!(files.contains(&site.home().join(".local/share/man/man1/fathom-record.1")), "{files:?}");
        let unfinished: Vec<_> = files.iter().filter(|file| file.to_string_lossy().ends_with(".new")).collect();
        ensure!(unfinished.is_empty(), "{unfinished:?}");
        ensure!(files.iter().all(|file| file.starts_with(site.home().join(".local"))), "{files:?}");
    }
    run(site.installer().arg("--uninstall"))?;
    let left = site.files()?;
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

fn installer_rejects_wrong_checksum() -> Result<()> {
    let site = Site::new()?;
    let archive = archive(&site.page())?;
    let mut bytes = std::fs::read(&archive)?;
    *bytes.last_mut().context("an archive has bytes")? ^= 1;
    std::fs::write(&archive, bytes)?;
    site.refuses(&mut site.installer(), "nothing was installed")
}

fn installer_removes_program_that_does_not_run() -> Result<()> {
    let site = Site::new()?;
    let archive = archive(&site.page())?;
    let name = archive.file_name().context("a name")?.to_string_lossy().replace(".tar.gz", "");
    let inside = site.page().join(&name);
    std::fs::create_dir(&inside)?;
    std::fs::write(inside.join("fathom"), "#!/bin/sh\nexit 3\n")?;
    run(Command::new("tar").arg("-C").arg(site.page()).arg("-czf").arg(&archive).arg(&name))?;
    site.sum_archive()?;
    site.refuses(&mut site.installer(), "does not run here")
}

fn installer_without_network_leaves_nothing() -> Result<()> {
    let site = Site::new()?;
    // A port on which nobody listens any more.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    site.refuses(site.installer().env("FATHOM_BASE", format!("http://{address}")), "cannot download")
}

fn installer_names_directory_without_permission() -> Result<()> {
    let site = Site::new()?;
    site.refuses(site.installer().env("PREFIX", "/usr"), "no permission to write to /usr")
}

fn wheel_runs_in_virtual_environment() -> Result<()> {
    let wheel = only(packages()?, "fathom_io-", ".whl")?;
    let directory = tempfile::tempdir()?;
    let environment = directory.path().join("environment");
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    let python = environment.join("bin/python3");
    let pip = || {
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "--disable-pip-version-check"]).env_remove("PYTHONPATH");
        pip
    };
    run(pip().args(["install", "--quiet", "--no-index"]).arg(&wheel))?;
    let program = environment.join("bin/fathom");
    ensure!(std::fs::read(&program)? == std::fs::read(fathom())?, "the wheel's program is another one");
    run(Command::new(&program).arg("--version"))?;
    // The package `fathom`, which reads archives, may be installed beside it.
    let listed = text(&run(pip().args(["show", "--files", "fathom-io"]))?);
    ensure!(listed.contains("bin/fathom") && !listed.contains("  fathom/"), "{listed}");
    run(Command::new(&python).args(["-c", "import fathom_io; fathom_io.counting"]).env_remove("PYTHONPATH"))?;
    // pip does not compare an installed file with its checksum in the wheel.
    let compare = "import base64, csv, hashlib, io, sys, zipfile\n\
                   wheel = zipfile.ZipFile(sys.argv[1])\n\
                   record = next(name for name in wheel.namelist() if name.endswith('/RECORD'))\n\
                   rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(wheel.read(record).decode()))}\n\
                   assert rows.keys() == set(wheel.namelist()), rows.keys()\n\
                   for name, (sum, size) in rows.items():\n    \
                       data = wheel.read(name)\n    \
                       digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()\n    \
                       assert name == record or (sum, size) == ('sha256=' + digest, str(len(data))), name\n";
    run(Command::new(&python).args(["-c", compare]).arg(&wheel))?;
    run(pip().args(["uninstall", "--quiet", "--yes", "fathom-io"]))?;
    ensure!(!program.exists(), "pip left the program");
    Ok(())
}

/// The file of the blob that a descriptor names.
fn blob(layout: &Path, descriptor: &Value) -> Result<PathBuf> {
    let digest = descriptor["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:")).context("a digest")?;
    let path = layout.join("blobs/sha256").join(digest);
    let size = std::fs::metadata(&path).with_context(|| format!("{descriptor}"))?.len();
    ensure!(descriptor["size"].as_u64() == Some(size), "{descriptor}: {size}");
    Ok(path)
}

fn read_json(path: &Path) -> Result<Value> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

fn image_runs_in_empty_root() -> Result<()> {
    let image = only(packages()?, "fathom-", "-oci.tar")?;
    let directory = tempfile::tempdir()?;
    let (layout, root) = (directory.path().join("layout"), directory.path().join("root"));
    for path in [&layout, &root] {
        std::fs::create_dir(path)?;
    }
    run(Command::new("tar").arg("-xf").arg(image).arg("-C").arg(&layout))?;
    let mut sums = String::new();
    for entry in std::fs::read_dir(layout.join("blobs/sha256"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        writeln!(sums, "{name}  blobs/sha256/{name}")?;
    }
    check_sums(&layout, &sums)?;

    let index = read_json(&layout.join("index.json"))?;
    let images = read_json(&blob(&layout, &index["manifests"][0])?)?;
    let manifest = &images["manifests"][0];
    let platform = if ARCHITECTURE == "aarch64" { "arm64" } else { "amd64" };
    ensure!(manifest["platform"]["architecture"] == platform, "{manifest}");
    let manifest = read_json(&blob(&layout, manifest)?)?;
    let config = read_json(&blob(&layout, &manifest["config"])?)?;
    let layers = manifest["layers"].as_array().context("layers[]")?;
    let contents = config["rootfs"]["diff_ids"].as_array().context("diff_ids[]")?;
    ensure!(layers.len() == contents.len(), "{config}");
    for (layer, content) in layers.iter().zip(contents) {
        let layer = blob(&layout, layer)?;
        let plain = directory.path().join("layer.tar");
        std::fs::write(&plain, run(Command::new("gzip").arg("-dc").arg(layer))?.stdout)?;
        let content = content.as_str().and_then(|digest| digest.strip_prefix("sha256:")).context("a digest")?;
        check_sums(directory.path(), &format!("{content}  layer.tar\n"))?;
        run(Command::new("tar").arg("-xf").arg(&plain).arg("-C").arg(&root))?;
    }
    let program = config["config"]["Entrypoint"][0].as_str().context("an entry point")?;
    let version = run(Command::new("chroot").arg(&root).arg(program).arg("--version"))?;
    ensure!(version.stdout == run(Command::new(fathom()).arg("--version"))?.stdout, "{}", text(&version));
    Ok(())
}

/// Compares files of a directory with checksums.
fn check_sums(directory: &Path, sums: &str) -> Result<()> {
    ensure!(!sums.is_empty(), "no checksums");
    let list = tempfile::NamedTempFile::new()?;
    std::fs::write(list.path(), sums)?;
    run(Command::new("sha256sum").args(["--check", "--strict", "--quiet"]).arg(list.path()).current_dir(directory))?;
    Ok(())
}

fn apt_downloads_the_package() -> Result<()> {
    let packages = packages()?;
    check_sums(packages, &std::fs::read_to_string(packages.join("SHA256SUMS"))?)?;
    // apt with directories of its own: neither root nor this machine's lists are needed.
    let own = tempfile::tempdir()?;
    for path in ["etc/apt/preferences.d", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "got"] {
        std::fs::create_dir_all(own.path().join(path))?;
    }
    std::fs::write(own.path().join("status"), "")?;
    let source = format!("deb [trusted=yes] file:{} ./\n", packages.to_string_lossy());
    std::fs::write(own.path().join("sources.list"), source)?;
    let platform = if ARCHITECTURE == "aarch64" { "arm64" } else { "amd64" };
    let apt = |words: &[&str]| {
        let at = |option: &str, path: &str| format!("{option}={}", own.path().join(path).to_string_lossy());
        let mut apt = Command::new("apt-get");
        for option in [
            at("Dir", ""),
            at("Dir::State::status", "status"),
            at("Dir::Etc::sourcelist", "sources.list"),
            "Dir::Etc::sourceparts=-".into(),
            "APT::Sandbox::User=".into(),
            format!("APT::Architecture={platform}"),
        ] {
            apt.arg("-o").arg(option);
        }
        run(apt.args(words).current_dir(own.path().join("got")))
    };
    apt(&["update"])?;
    apt(&["download", "fathom"])?;
    let (got, made) = (only(&own.path().join("got"), "fathom_", ".deb")?, only(packages, "fathom_", ".deb")?);
    ensure!(std::fs::read(got)? == std::fs::read(made)?, "apt's package is another one");
    Ok(())
}

fn recipes_have_the_archives_checksum() -> Result<()> {
    let packages = packages()?;
    let sum = text(&run(Command::new("sha256sum").arg(archive(packages)?))?);
    let sum = sum.split(' ').next().context("a checksum")?;
    let name = archive(packages)?.file_name().context("a name")?.to_string_lossy().into_owned();
    for recipe in ["homebrew/fathom.rb", "aur/PKGBUILD", "aur/.SRCINFO", "nix/flake.nix", "termux/build.sh"] {
        let text = std::fs::read_to_string(packages.join("recipes").join(recipe))?;
        ensure!(text.contains(&name), "{recipe}: {text}");
        // Nix writes it in another base.
        ensure!(text.contains(sum) || recipe.ends_with(".nix") && text.contains("sha256-"), "{recipe}: {text}");
        ensure!(!text.contains("@if") && !text.contains("@end"), "{recipe}: {text}");
    }
    Ok(())
}

fn packages_are_the_same_bytes_each_time() -> Result<()> {
    let sums = |directory: &Path| std::fs::read_to_string(directory.join("SHA256SUMS"));
    let first = sums(packages()?)?;
    let directory = tempfile::tempdir()?;
    make(directory.path())?;
    let again = sums(directory.path())?;
    ensure!(first == again, "{first}\n{again}");
    Ok(())
}

fn missing_archive_is_an_error() -> Result<()> {
    let empty = tempfile::tempdir()?;
    let output = empty.path().join("output");
    let failed = packaging("make").arg("--dist").arg(empty.path()).arg("--output").arg(&output).output()?;
    let said = String::from_utf8_lossy(&failed.stderr);
    ensure!(
        !failed.status.success() && said.contains("run `make dist` first") && !said.contains("Traceback"),
        "{said}"
    );
    ensure!(!output.exists(), "an output without packages");
    Ok(())
}
