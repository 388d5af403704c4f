//! Errors of the command line, in one line.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The first line of clap's message, with the correct usage but without its usage block.
pub fn one_line(error: &clap::Error, flags: Option<&str>) -> String {
    let text = error.render().to_string();
    let first = text.lines().next().unwrap_or_default();
    let mut line = first.strip_prefix("error: ").unwrap_or(first).trim_end().to_owned();
    if error.kind() == ErrorKind::MissingRequiredArgument {
        // The names of missing arguments are on lines of their own.
        let missing = text.lines().skip(1).take_while(|line| line.starts_with("  "));
        for name in missing {
            line = format!("{line} {}", name.trim());
        }
    }
    if let (ErrorKind::UnknownArgument, Some(flags)) = (error.kind(), flags) {
        return format!("{line}; the flags are {flags}");
    }
    if let Some(ContextValue::Strings(values)) = error.get(ContextKind::ValidValue)
        && !values.is_empty()
    {
        return format!("{line}; write one of {}", values.join(", "));
    }
    if error.kind() == ErrorKind::ValueValidation {
        return line;
    }
    let suggestions =
        [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let suggestion = suggestions.iter().find_map(|kind| match error.get(*kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        _ => None,
    });
    match suggestion {
        Some(text) => format!("{line}; did you mean `{text}`?"),
        None => format!("{line}; `--help` behind the command lists what there is"),
    }
}
