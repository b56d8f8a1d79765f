//! An error in a line of input.

use std::fmt;

use tidegate::KeyError;
use tidegate_policy::json::FieldError;

/// An error in a line: the field, the problem and a remedy.
#[derive(Debug)]
pub(super) struct Complaint(String);

impl Complaint {
    pub(super) fn new(field: impl fmt::Display, problem: impl fmt::Display, remedy: impl fmt::Display) -> Complaint {
        Complaint::from(FieldError::new(field, problem, remedy))
    }
}

impl From<FieldError> for Complaint {
    fn from(error: FieldError) -> Complaint {
        Complaint(error.to_string())
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
