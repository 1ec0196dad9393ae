//! A benchmark for the tests: a design whose workload is a script that makes its durations up, so that scores are arithmetic and
//! nothing depends on how fast the machine is.

use anyhow::Result;
use tempfile::TempDir;

/// Iterations of `{duration}` ns, in some processes up to a thousandth more; 5 rows of work each. What stands in the file `slow` of
/// the working folder goes before the digits: the same command, whose program has become slower.
pub const DESIGN: &str = r#"
name = "fake"
question = "How fast is a script that makes its numbers up?"
argv = ["/bin/sh", "-c", '''
sleep {pause}
longer=$(cat slow 2>/dev/null)
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
    echo "{\"metric\":\"iteration\",\"unit\":\"ns\",\"t\":$i,\"v\":$longer$1.$(($$ % 10))}"
done
echo "{\"metric\":\"work\",\"unit\":\"row\",\"v\":5}"
echo "{\"mark\":\"mode\",\"text\":\"made up\"}"
echo "{\"verified\":{honest},\"by\":\"nothing\"}"
''', "sh", "{duration}"]

[score]

[run]
blocks = 6
precision_percent = 2
budget_s = 600

[quick]
blocks = 5
precision_percent = 2
budget_s = 60

[[factor]]
name = "duration"
about = "ns of an iteration"
default = [1000, 2000]
range = [1, 1000000]

[[factor]]
name = "honest"
about = "whether the result is right"
default = true
values = [true, false]

[[factor]]
name = "pause"
about = "s before it begins"
default = 0
values = [0, 0.05, 0.4]
"#;

/// A folder with the design in it, as `fake.toml`.
///
/// # Errors
/// It cannot be made.
pub fn folder() -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("fake.toml"), DESIGN)?;
    Ok(folder)
}
