//! A command line for this program elsewhere: what was given, but for some options.

use super::Cli;
use crate::Usage;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command, CommandFactory as _};
use model::text::ShownPath as _;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The words after the program's name that ask for the same without the arguments `omitted`, which are named by their ids. What was not
/// given stays so: defaults are the other side's.
///
/// # Errors
/// They are no command, or one that is forwarded is not UTF-8.
pub fn forwarded_words(given: impl IntoIterator<Item = OsString>, omitted: &[&str]) -> Result<Vec<String>, Usage> {
    let mut all = Cli::command();
    all.build();
    let words = std::iter::once("fathom".into()).chain(given);
    let matches = all.try_get_matches_from_mut(words).map_err(|error| Usage(error.to_string()))?;
    let (mut command, mut matches, mut verbs): (&Command, &ArgMatches, _) = (&all, &matches, Vec::new());
    while let Some((name, inner)) = matches.subcommand()
        && let Some(verb) = command.find_subcommand(name)
    {
        verbs.push(name.to_owned());
        (command, matches) = (verb, inner);
    }
    let (mut options, mut positional) = (Vec::new(), Vec::new());
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        if omitted.contains(&id) || matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let values = matches.get_raw(id).into_iter().flatten().map(to_utf8);
        match arg.get_long() {
            Some(long) if arg.get_action().takes_values() => {
                for value in values {
                    options.push(format!("--{long}={}", value?));
                }
            }
            Some(long) => {
                let times =
                    if matches!(arg.get_action(), ArgAction::Count) { usize::from(matches.get_count(id)) } else { 1 };
                options.extend(std::iter::repeat_n(format!("--{long}"), times));
            }
            None => positional.extend(values.collect::<Result<Vec<_>, Usage>>()?),
        }
    }
    if !positional.is_empty() {
        positional.insert(0, "--".into());
    }
    Ok([verbs, options, positional].concat())
}

fn to_utf8(word: &OsStr) -> Result<String, Usage> {
    let wrong = || Usage(format!("{}: words for a device must be UTF-8", Path::new(word).shown()));
    word.to_str().map(str::to_owned).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt as _;

    fn there(given: &[&str], omitted: &[&str]) -> String {
        forwarded_words(given.iter().map(OsString::from), omitted)
            .map(|words| words.join(" "))
            .unwrap_or_else(|e| e.to_string())
    }

    #[test]
    fn only_given_arguments_are_forwarded() {
        let given = [
            "pool",
            "node",
            "--backend",
            "memory:1M",
            "--key=secret",
            "--listen",
            "0.0.0.0:0",
            "--insecure",
            "--insecure",
        ];
        let words = there(&given, &["key"]);
        assert_eq!(words, "pool node --backend=memory:1M --listen=0.0.0.0:0 --insecure --insecure");
    }

    #[test]
    fn forwarded_words_request_the_same_command() {
        let given =
            "record --all -o mine.fathom --op libc.so:fsync --op ./a:f --max-size 64K --stacks off -- sh -c x -o y";
        let given: Vec<&str> = given.split(' ').collect();
        let words = there(&given, &["output"]);
        assert_eq!(words, "record --all --max-size=64K --op=libc.so:fsync --op=./a:f --stacks=off -- sh -c x -o y");
        assert_eq!(there(&words.split(' ').collect::<Vec<_>>(), &[]), words);
    }

    #[test]
    fn words_that_are_not_utf8_are_refused() {
        let odd = OsString::from_vec(vec![b's', 0xff]);
        let words = ["pool", "node", "--listen=0.0.0.0:0", "--store"].map(OsString::from);
        let node = |omitted: &[&str]| forwarded_words([&words[..], std::slice::from_ref(&odd)].concat(), omitted);
        assert!(node(&[]).is_err_and(|why| why.to_string().ends_with("must be UTF-8")));
        // What stays here may have any name.
        assert_eq!(node(&["store"]).ok(), Some(["pool", "node", "--listen=0.0.0.0:0"].map(String::from).to_vec()));
    }
}
