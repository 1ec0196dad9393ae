//! Drawing as in the papers (000, section 4.4): rectangles, lines and circles, again and again, in Java. On a host it
//! is Java2D on an image in memory (the modes `jvm-*`); on a device the same classes draw on Android's canvas (the
//! modes `art-*`; see `java/` and [`art`]), and they do so on [`robolectric`].
//!
//! Everything that determines the speed is recorded or is a parameter: above all anti-aliasing (Java2D's is written in
//! Java), the size and format of the image, the size of the figures, and how the bytecode is executed. The paper states
//! none of them.

use crate::options::{Options, Spec};
use crate::{Error, art, jvm, robolectric};
use model::Context;
use std::io::Write;
use std::path::Path;

const HELP_SUMMARY: &str = "Draws rectangles, lines or circles on an image in memory, in Java.";

const OPTION_SPECS: &[Spec] = &[
    Spec {
        name: "mode",
        default: "jvm-tiered",
        help: "jvm-int, jvm-c1, jvm-c2 or jvm-tiered (Java2D), or on Android art-interpreter, art-jit or art-aot (its canvas); \
               robolectric: Android's canvas on this host",
    },
    Spec { name: "shape", default: "rect", help: "rect, line or circle; rectangles and circles are filled" },
    Spec { name: "antialias", default: "off", help: "on or off" },
    Spec { name: "size", default: "480x800", help: "size of the image, WIDTHxHEIGHT" },
    Spec { name: "extent", default: "100", help: "size of a figure, in pixels" },
    Spec {
        name: "format",
        default: "argb-pre",
        help: "pixel format: argb-pre or rgb565; Java2D also has argb and rgb",
    },
    Spec { name: "iterations", default: "30", help: "timed iterations" },
    Spec { name: "inner", default: "0", help: "figures per iteration; 0: automatic" },
    Spec {
        name: "min-iteration-ms",
        default: "10",
        help: "double the figures per iteration until one takes this long",
    },
    Spec { name: "java", default: "java", help: "path of java, for the modes jvm-* and robolectric" },
    Spec {
        name: "art",
        default: "",
        help: "path of the Android runtime, for the modes art-* [app_process64 or app_process on PATH]",
    },
    art::DEX_JAR_OPTION,
    robolectric::DIRECTORY_OPTION,
];

/// Draws: a `jvm-*` mode becomes a JVM and does not return, an `art-*` mode runs Android's runtime.
pub fn run(words: &[String], context: &Context, out: &mut dyn Write) -> Result<(), Error> {
    let options = Options::parse(HELP_SUMMARY, OPTION_SPECS, words)?;
    let modes: Vec<&str> = jvm::MODES.iter().chain(&art::MODES).map(|m| m.0).chain([robolectric::MODE]).collect();
    let mode = options.one_of("mode", &modes)?;
    let on_device = art::MODES.iter().any(|m| m.0 == mode);
    let on_android = on_device || mode == robolectric::MODE;
    let (width, height) = parse_size(options.text("size"))?;
    let extent: u32 = options.get("extent")?;
    if extent < 4 || extent >= width.min(height) {
        return Err(Error::Usage(format!("--extent is from 4 to {}, one less than the image", width.min(height) - 1)));
    }
    let number = |name: &str, least: u64, most: u64| match options.get::<u64>(name)? {
        n if (least..=most).contains(&n) => Ok(n.to_string()),
        n => Err(Error::Usage(format!("--{name} is from {least} to {most}, not {n}"))),
    };
    let format = options.one_of("format", &["argb", "argb-pre", "rgb", "rgb565"])?;
    if on_android && !["argb-pre", "rgb565"].contains(&format) {
        return Err(Error::Usage(format!("--format {format}: Android's canvas has argb-pre and rgb565")));
    }
    let words = [
        ("shape", options.one_of("shape", &["rect", "line", "circle"])?.to_string()),
        ("antialias", options.one_of("antialias", &["on", "off"])?.to_string()),
        ("size", format!("{width},{height}")),
        ("extent", extent.to_string()),
        ("format", format.to_string()),
        ("iterations", number("iterations", 1, 10_000_000)?),
        ("inner", number("inner", 0, 1 << 40)?),
        ("min-iteration-ms", number("min-iteration-ms", 0, 3_600_000)?),
    ];
    let words = words.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]);
    let words: Vec<String> = std::iter::once("draw".to_string()).chain(words).collect();
    let heap = (256 << 20) + 4 * u64::from(width) * u64::from(height);
    if mode == robolectric::MODE {
        let directory = Path::new(options.text("robolectric"));
        return robolectric::run(options.text("java"), directory, &words, context, out);
    }
    if on_device {
        let (launcher, jar) = (options.text("art"), Path::new(options.text("dex-jar")));
        return art::run(&art::ModeRequest { mode, launcher, jar, heap, framework: true }, &words, context, out);
    }
    jvm::become_jvm(options.text("java"), mode, heap, &words, out)
}

fn parse_size(text: &str) -> Result<(u32, u32), Error> {
    let sides = text.split_once('x').and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
    let good = sides.filter(|(w, h)| (16..=16_384).contains(w) && (16..=16_384).contains(h));
    good.ok_or_else(|| {
        Error::Usage(format!(
            "--size: invalid value {text:?}; expected WIDTHxHEIGHT such as 480x800, \
        each 16 to 16384"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        match run(&words, &Context::silent(), &mut Vec::new()) {
            Err(Error::Usage(text)) => text,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn option_errors_are_reported_before_a_jvm_starts() {
        assert!(error(&["--size", "480"]).contains("480x800"));
        assert!(error(&["--size", "0x800"]).contains("480x800"));
        assert!(error(&["--extent", "480"]).contains("--extent"));
        assert!(error(&["--mode", "rust"]).contains("jvm-int"));
        assert!(error(&["--mode", "art-jit", "--format", "argb"]).contains("argb-pre and rgb565"));
        assert!(error(&["--mode", "art-jit", "--art", "/bin/dalvikvm64"]).contains("app_process"));
        assert!(error(&["--shape", "star"]).contains("circle"));
        assert!(error(&["--iterations", "0"]).contains("--iterations"));
    }
}
