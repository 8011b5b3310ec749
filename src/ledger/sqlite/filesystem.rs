//! Which file system a ledger is on. SQLite's log is shared memory and its locks are the kernel's: on a
//! network file system neither is sure to hold between hosts, and a lost lock is a damaged ledger.

use std::path::{Path, PathBuf};

/// A file system, as far as it matters to a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// As the system names it, such as `ext4` or `nfs4`.
    pub name: String,
    pub kind: FileSystemKind,
}

/// Whether a ledger may be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemKind {
    /// On this host.
    Local,
    /// Gone with the host or the container.
    Volatile,
    /// Shared with other hosts: locks cannot be relied on.
    Network,
    /// A program of somebody's, which may be anything.
    Unknown,
}

impl FileSystem {
    /// Of a file or directory that is there. Blocks; for as long as a server is away, if it is one's.
    ///
    /// # Errors
    ///
    /// What the system says.
    #[cfg(target_os = "linux")]
    pub fn of(path: &Path) -> std::io::Result<Self> {
        use std::os::unix::ffi::OsStrExt;

        let path = std::fs::canonicalize(path)?;
        // Magic numbers have 32 bits, in a field whose width and sign depend on the processor.
        let magic = rustix::fs::statfs(&path)?.f_type as u32;
        // Only for its words: without it the number decides.
        let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        let mounted = mounted_as(&mounts, path.as_os_str().as_bytes());
        Ok(Self::named(magic, mounted.as_deref().unwrap_or_default()))
    }

    /// Of a ledger that is there or is to be made, with what it was asked of: the ledger itself, or the nearest
    /// directory above it that is there. Blocks as [`FileSystem::of`] does.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn of_ledger(path: &Path) -> (PathBuf, std::io::Result<Self>) {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let place = absolute.ancestors().find(|place| place.exists()).unwrap_or(Path::new("/")).to_owned();
        let found = Self::of(&place);
        (place, found)
    }

    /// Elsewhere than on Linux nothing is known.
    ///
    /// # Errors
    ///
    /// None.
    #[cfg(not(target_os = "linux"))]
    pub fn of(_: &Path) -> std::io::Result<Self> {
        Ok(Self { name: "unknown".to_owned(), kind: FileSystemKind::Unknown })
    }

    fn named(magic: u32, mounted: &str) -> Self {
        let name = if mounted.is_empty() { format!("0x{magic:x}") } else { mounted.to_owned() };
        let in_list = |list: &[&str]| list.contains(&mounted);
        let kind = if NETWORK_MAGIC.contains(&magic) || in_list(&NETWORK_NAMES) {
            FileSystemKind::Network
        } else if VOLATILE_MAGIC.contains(&magic) {
            FileSystemKind::Volatile
        } else if magic == FUSE_MAGIC && !in_list(&LOCAL_FUSE) {
            FileSystemKind::Unknown
        } else {
            FileSystemKind::Local
        };
        Self { name, kind }
    }
}

/// From linux/magic.h and the file systems' own sources: nfs, smb, smb2, cifs, 9p, ceph, afs (two), coda,
/// ncp, lustre, gpfs, beegfs, ocfs2, gfs2, vboxsf.
const NETWORK_MAGIC: [u32; 16] = [
    0x6969,
    0x517b,
    0xfe53_4d42,
    0xff53_4d42,
    0x0102_1997,
    0x00c3_6400,
    0x5346_414f,
    0x6b41_4653,
    0x7375_7245,
    0x564c,
    0x0bd0_0bd0,
    0x4750_4653,
    0x1983_0326,
    0x7461_636f,
    0x0116_1970,
    0x786f_4256,
];
/// By the name they are mounted under, where the number says only FUSE.
const NETWORK_NAMES: [&str; 15] = [
    "fuse.sshfs",
    "fuse.glusterfs",
    "fuse.ceph",
    "fuse.ceph-fuse",
    "fuse.s3fs",
    "fuse.goofys",
    "fuse.mount-s3",
    "fuse.mountpoint-s3",
    "fuse.gcsfuse",
    "fuse.rclone",
    "fuse.davfs",
    "fuse.curlftpfs",
    "fuse.juicefs",
    "fuse.mfs",
    "fuse.seaweedfs",
];
const FUSE_MAGIC: u32 = 0x6573_5546;
/// FUSE file systems that keep files on this host.
const LOCAL_FUSE: [&str; 8] = [
    "fuseblk",
    "fuse.bindfs",
    "fuse.encfs",
    "fuse.gocryptfs",
    "fuse.mergerfs",
    "fuse.ntfs-3g",
    "fuse.exfat-fuse",
    "fuse.ext4",
];
/// tmpfs, ramfs, and a container's own layer (overlay).
const VOLATILE_MAGIC: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x794c_7630];

/// The type of what is mounted over `path`, by the lines of `/proc/self/mountinfo`: the longest mount
/// point above it, and of several at one place the last.
fn mounted_as(mounts: &[u8], path: &[u8]) -> Option<String> {
    let mut best: Option<(usize, String)> = None;
    for line in mounts.split(|byte| *byte == b'\n') {
        let Some(point) = line.split(|byte| *byte == b' ').nth(4).map(unescaped) else { continue };
        let is_above = point == b"/"
            || path.strip_prefix(point.as_slice()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
        let line = String::from_utf8_lossy(line);
        let Some((_, after)) = line.split_once(" - ") else { continue };
        if is_above && best.as_ref().is_none_or(|(length, _)| point.len() >= *length) {
            best = Some((point.len(), after.split(' ').next().unwrap_or_default().to_owned()));
        }
    }
    best.map(|(_, name)| name)
}

/// Blanks and the like stand there as `\040`.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_number_or_name() {
        for (magic, mounted, kind) in [
            (0xef53, "ext4", FileSystemKind::Local),
            (0x6969, "nfs4", FileSystemKind::Network),
            (0x6969, "", FileSystemKind::Network),
            (0xff53_4d42, "cifs", FileSystemKind::Network),
            (0xfe53_4d42, "smb3", FileSystemKind::Network),
            (0x0102_1997, "9p", FileSystemKind::Network),
            (FUSE_MAGIC, "fuse.sshfs", FileSystemKind::Network),
            (FUSE_MAGIC, "fuse.bindfs", FileSystemKind::Local),
            (FUSE_MAGIC, "fuse.something", FileSystemKind::Unknown),
            (FUSE_MAGIC, "", FileSystemKind::Unknown),
            (0x0102_1994, "tmpfs", FileSystemKind::Volatile),
            (0x794c_7630, "overlay", FileSystemKind::Volatile),
        ] {
            assert_eq!(FileSystem::named(magic, mounted).kind, kind, "{magic:x} {mounted}");
        }
        assert_eq!(FileSystem::named(0x6969, "").name, "0x6969");
    }

    #[test]
    fn the_nearest_mount_point_above_counts() {
        let mounts = b"21 1 8:1 / / rw,noatime - ext4 /dev/sda1 rw\n\
            30 21 0:40 / /srv/a\\040b rw - nfs4 host:/x rw\n\
            31 21 0:41 / /srv rw shared:5 - xfs /dev/sdb rw\n\
            32 21 0:42 / /srv/twice rw - ext4 /dev/sdc rw\n\
            33 32 0:43 / /srv/twice rw - fuse.sshfs u@h: rw\n";
        for (path, name) in [
            ("/srv/a b/ledger.db", "nfs4"),
            ("/srv/a b", "nfs4"),
            ("/srv/a bc", "xfs"),
            ("/srv/x", "xfs"),
            ("/srv/twice/x", "fuse.sshfs"),
            ("/srvx", "ext4"),
        ] {
            assert_eq!(mounted_as(mounts, path.as_bytes()).as_deref(), Some(name), "{path}");
        }
        assert_eq!(mounted_as(b"", b"/x"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn proc_is_what_it_says() {
        let found = FileSystem::of(Path::new("/proc/self")).unwrap();
        assert_eq!((found.name.as_str(), found.kind), ("proc", FileSystemKind::Local));
        assert!(FileSystem::of(Path::new("/nowhere/at/all")).is_err());
    }
}
