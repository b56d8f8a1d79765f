//! What is wrong with a line, in the words of the line.

use std::fmt;

use tidegate::{KeyError, LimitError};

use crate::bounds::QUOTE_CHARS_MAX;

/// What is wrong with a line: the field, its value and what would do.
#[derive(Debug)]
pub(super) struct Complaint(String);

impl Complaint {
    pub(super) fn new(field: impl fmt::Display, problem: impl fmt::Display, remedy: impl fmt::Display) -> Complaint {
        Complaint(format!("{field}: {problem}; {remedy}"))
    }

    /// What is wrong with the numbers of a limit object, whose fields have their unit in the name.
    pub(super) fn about_object(error: LimitError) -> Complaint {
        let json_name = |field| match field {
            "period" => "per_ns",
            "window" => "window_ns",
            other => other,
        };
        Complaint(rename(error, json_name).to_string())
    }

    /// What is wrong with a limit that is a string: it is a field as a whole.
    pub(super) fn about_text(error: LimitError) -> Complaint {
        match rename(error, |_| "limit") {
            LimitError::Unreadable { text } => Complaint::new(
                "limit",
                format_args!("cannot read \"{text}\""),
                "write units/period, like 100/minute, 5/10s or 1/day",
            ),
            error => Complaint(error.to_string()),
        }
    }
}

impl From<KeyError> for Complaint {
    fn from(error: KeyError) -> Complaint {
        Complaint(error.to_string())
    }
}

impl From<Complaint> for String {
    fn from(complaint: Complaint) -> String {
        complaint.0
    }
}

fn rename(mut error: LimitError, name: impl Fn(&'static str) -> &'static str) -> LimitError {
    match &mut error {
        LimitError::Zero { field }
        | LimitError::TooLarge { field, .. }
        | LimitError::TooLong { field, .. }
        | LimitError::TooFast { field, .. } => *field = name(field),
        LimitError::Unreadable { .. } => {}
    }
    error
}

/// A value as an error repeats it: shortened, so that an answer stays short whatever came in.
pub(super) fn quote(value: &str) -> String {
    match value.char_indices().nth(QUOTE_CHARS_MAX) {
        None => value.to_owned(),
        Some((end, _)) => format!("{}…", &value[..end]),
    }
}
