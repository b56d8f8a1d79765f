//! Noticing that files are other ones than those that were read.
//!
//! Files are looked at twice a second instead of being watched: that also sees the symlinks that Kubernetes swaps, works
//! on every file system, and costs the serving threads nothing.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::bounds::RELOAD_LOOK;

/// What tells whether a file is another one than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileMark {
    path: PathBuf,
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Of the file's owner and permissions too: one that could not be read may be readable now.
    changed: (i64, i64),
}

impl FileMark {
    /// Looks at a file. What is not there has no mark: whoever reads it reports that.
    pub(crate) fn of(path: &Path) -> Option<FileMark> {
        // Follows links, so that a swapped one shows as another file.
        let metadata = std::fs::metadata(path).ok()?;
        Some(FileMark {
            path: path.to_owned(),
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// Resolves when `look` finds other files than those that were `read`, and has found the same twice in a row: who writes
/// them may not be done.
pub(crate) async fn changed<F>(read: &[FileMark], look: impl Fn() -> F)
where
    F: FnOnce() -> Vec<FileMark> + Send + 'static,
{
    let mut before = None;
    loop {
        tokio::time::sleep(RELOAD_LOOK).await;
        // Beside this task: a disk may hang, and signals must be heard all the same.
        let Ok(now) = tokio::task::spawn_blocking(look()).await else { continue };
        if now != read && before.as_ref() == Some(&now) {
            return;
        }
        before = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_that_is_another_one_or_may_be_read_by_others_has_another_mark() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("first"), "some").unwrap();
        fs::write(path("second"), "some").unwrap();
        symlink(path("first"), path("link")).unwrap();
        let first = FileMark::of(&path("link"));
        assert_eq!(FileMark::of(&path("link")), first);
        // Coarse clocks of file systems tick a hundred times a second.
        std::thread::sleep(std::time::Duration::from_millis(50));
        fs::set_permissions(path("first"), Permissions::from_mode(0o600)).unwrap();
        let closed = FileMark::of(&path("link"));
        assert_ne!(closed, first);
        symlink(path("second"), path("other")).unwrap();
        fs::rename(path("other"), path("link")).unwrap();
        assert_ne!(FileMark::of(&path("link")), closed);
        fs::remove_file(path("second")).unwrap();
        assert_eq!(FileMark::of(&path("link")), None);
    }
}
