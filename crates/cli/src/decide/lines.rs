//! Lines of bounded length.

use std::io::{self, BufRead, BufReader, Read, Write};

use super::Complaint;
use crate::bounds::LINE_BYTES_MAX;

/// Reads lines, and keeps at most the longest allowed line in memory.
pub(super) struct Lines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
}

/// How a line ended.
#[derive(PartialEq, Eq)]
enum End {
    Newline,
    /// End of the input: this is the last line, possibly empty.
    Input,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(input: R) -> Lines<R> {
        Lines { input: BufReader::with_capacity(LINE_BYTES_MAX, input), line: Vec::new() }
    }

    /// Returns the next line that is not blank, without its end, or an error about it; `None` at the end of the input.
    ///
    /// It flushes `output` before it waits for input: a caller that waits for an answer gets it, and the answers to a file
    /// are still written in large blocks.
    pub(super) fn next(&mut self, output: &mut impl Write) -> io::Result<Option<Result<&str, Complaint>>> {
        loop {
            self.line.clear();
            let (end, length) = self.read_line(output)?;
            if length > LINE_BYTES_MAX {
                let problem = format_args!("{length} bytes are too long");
                let remedy = format_args!("a line has at most {LINE_BYTES_MAX} bytes");
                return Ok(Some(Err(Complaint::new("line", problem, remedy))));
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
            if end == End::Input {
                return Ok(None);
            }
        }
        Ok(Some(str::from_utf8(&self.line).map_err(|error| {
            let problem = format_args!("not UTF-8 after byte {}", error.valid_up_to());
            Complaint::new("line", problem, "write JSON in UTF-8")
        })))
    }

    /// Reads to the end of the line and returns its whole length. The rest of a line that is too long is dropped as it
    /// arrives.
    fn read_line(&mut self, output: &mut impl Write) -> io::Result<(End, usize)> {
        let mut length = 0;
        loop {
            if self.input.buffer().is_empty() {
                output.flush()?;
            }
            let chunk = match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                filled => filled?,
            };
            if chunk.is_empty() {
                return Ok((End::Input, length));
            }
            let newline = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..newline.unwrap_or(chunk.len())];
            length += part.len();
            if length <= LINE_BYTES_MAX {
                self.line.extend_from_slice(part);
            }
            let consumed = part.len() + usize::from(newline.is_some());
            self.input.consume(consumed);
            if newline.is_some() {
                return Ok((End::Newline, length));
            }
        }
    }
}
