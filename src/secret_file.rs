//! A secret in a file, read again when the file has changed, so that it can be exchanged while we run.

use std::{
    fmt, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A token or a few keys; a file longer than this is some other file.
const BYTES_MAX: u64 = 16 * 1024;

/// What a file's text is read as.
pub(crate) trait Secret: Sized {
    /// How a sentence names the file.
    const WHAT: &'static str;

    /// # Errors
    ///
    /// What is wrong and what is expected, without any of the text.
    fn parse(text: &str) -> Result<Self, String>;
}

/// One look at its metadata for each reading; the file itself is opened when that has changed.
pub(crate) struct SecretFile<S> {
    path: PathBuf,
    last: Mutex<Option<(Stamp, Arc<S>)>>,
}

/// Differs for any two contents that were in place at different times: a file that is replaced has
/// another inode, one that is written to another time of change.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

impl<S: Secret> SecretFile<S> {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), last: Mutex::new(None) }
    }

    /// The secret as the file has it now.
    ///
    /// # Errors
    ///
    /// One sentence that names the file.
    pub(crate) fn read(&self) -> Result<Arc<S>, String> {
        let what = |error: &dyn fmt::Display| format!("the {} '{}': {error}", S::WHAT, self.path.display());
        let stamp = Stamp::of(&self.path).map_err(|error| what(&error))?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((seen, secret)) = &*last
            && *seen == stamp
        {
            return Ok(secret.clone());
        }
        if stamp.length > BYTES_MAX {
            return Err(what(&format!("it has {} bytes, expected {BYTES_MAX} at most", stamp.length)));
        }
        let text = fs::read_to_string(&self.path).map_err(|error| what(&error))?;
        let secret = Arc::new(S::parse(&text).map_err(|error| what(&error))?);
        *last = stamp.is_settled().then(|| (stamp, secret.clone()));
        Ok(secret)
    }
}

impl Stamp {
    fn of(path: &Path) -> std::io::Result<Self> {
        let metadata = fs::metadata(path)?;
        if !metadata.is_file() {
            return Err(std::io::Error::other("it is not a file"));
        }
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }

    /// Whether a further change would show: file systems count time in steps, and two writes may fall
    /// into one.
    fn is_settled(self) -> bool {
        let changed = Duration::from_secs(self.changed.0.unsigned_abs());
        let age = SystemTime::now().duration_since(UNIX_EPOCH + changed);
        age.is_ok_and(|age| age > Duration::from_secs(2))
    }
}

/// What stands after `Authorization: Bearer `.
pub(crate) struct BearerToken(pub(crate) String);

impl Secret for BearerToken {
    const WHAT: &'static str = "bearer token file";

    fn parse(text: &str) -> Result<Self, String> {
        let token = text.trim();
        if token.is_empty() {
            return Err("it is empty: write the token into it".to_owned());
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(
                "a token is one word of visible ASCII characters: write nothing else into it".to_owned()
            );
        }
        Ok(Self(token.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_read_again_and_a_bad_one_is_an_error_that_keeps_its_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let file = SecretFile::<BearerToken>::new(&path);
        let read = || file.read().map(|token| token.0.clone());
        assert!(read().unwrap_err().contains("No such file"));
        fs::write(&path, "one\n").unwrap();
        assert_eq!(read().unwrap(), "one");
        fs::write(&path, "two\n").unwrap();
        assert_eq!(read().unwrap(), "two", "written in place");
        fs::write(folder.path().join("next"), "six\n").unwrap();
        fs::rename(folder.path().join("next"), &path).unwrap();
        assert_eq!(read().unwrap(), "six", "replaced");
        for bad in ["hid den", "hid\nden", "hiddén"] {
            fs::write(&path, bad).unwrap();
            let error = read().unwrap_err();
            assert!(error.contains("one word") && !error.contains("hid"), "{error}");
        }
        fs::write(&path, " \n").unwrap();
        assert!(read().unwrap_err().contains("it is empty"));
        fs::write(&path, "x".repeat(20_000)).unwrap();
        assert!(read().unwrap_err().contains("20000 bytes"));
        fs::remove_file(&path).unwrap();
        assert!(read().is_err(), "an old secret is not used on");
    }
}
