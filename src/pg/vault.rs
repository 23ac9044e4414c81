//! The master key file, and keys on their way into the database and out of it.
//!
//! The file is read when a key is made or opened and forgotten at once: no process keeps a master key, and a changed
//! file counts without a reload. Neither errors nor warnings carry key material, nor the path, which is for
//! superusers.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use pgrx::PgSqlErrorCode;
use pgrx::pg_sys;
use zeroize::Zeroizing;

use super::error::Raise;
use super::settings;
use crate::rules::vault::{self, KeyFileFault, Locked, MasterKeys, NONCE, Place};

/// The longest file that is read: sixteen keys and their line ends, and one byte more to find a longer one.
const LONGEST: u64 = 16 * 45 + 1;

thread_local! {
    static WARNED: Cell<bool> = const { Cell::new(false) };
}

/// Why the file cannot be used.
#[derive(Clone)]
pub enum Fault {
    Missing,
    Unreadable(String),
    NoFile,
    Owner,
    Mode(u32),
    Inside,
    Contents(KeyFileFault),
}

impl Fault {
    fn code(&self) -> PgSqlErrorCode {
        match self {
            Fault::Missing => PgSqlErrorCode::ERRCODE_UNDEFINED_FILE,
            Fault::Unreadable(_) => PgSqlErrorCode::ERRCODE_IO_ERROR,
            _ => PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        }
    }

    /// What is wrong, as a sentence.
    pub fn sentence(&self) -> String {
        const FILE: &str = "The file named by \"webhook.master_key_file\"";
        match self {
            Fault::Missing => format!("{FILE} does not exist."),
            Fault::Unreadable(why) => format!("{FILE} could not be read: {why}."),
            Fault::NoFile => format!("{FILE} is not a regular file."),
            Fault::Owner => format!("{FILE} does not belong to the server's user."),
            Fault::Mode(mode) => {
                format!("{FILE} is open to its group or to others (mode {mode:04o}).")
            }
            Fault::Inside => {
                format!("{FILE} is in the data folder, and so in every copy of it.")
            }
            Fault::Contents(fault) => format!("{FILE} {fault}."),
        }
    }

    fn raise(&self) -> ! {
        Raise::new(self.code(), "could not use the master key file")
            .detail(self.sentence())
            .hint("The file holds the base64 of 32 random bytes in one line, belongs to the server's user and has mode 0600.")
            .raise()
    }
}

/// The master keys as they are now, to open several keys with.
pub struct Vault(Result<Option<MasterKeys>, Fault>);

impl Vault {
    /// Reads the file, if one is set.
    pub fn read() -> Vault {
        Vault(read())
    }

    /// Opens a stored key.
    pub fn open(&self, place: Place, stored: &[u8]) -> Result<Zeroizing<Vec<u8>>, Unopened> {
        let masters = match &self.0 {
            Ok(masters) => masters.as_ref(),
            Err(_) => None,
        };
        vault::open(masters, place, stored).map_err(|locked| Unopened {
            lasting: matches!(locked, Locked::Altered | Locked::Malformed),
            why: match (&self.0, locked) {
                (Err(fault), Locked::NoMasterKey) => {
                    fault.sentence().trim_end_matches('.').to_owned()
                }
                (_, locked) => locked.to_string(),
            },
        })
    }
}

/// Why a stored key could not be opened.
pub struct Unopened {
    /// A sentence without its end.
    pub why: String,
    /// No master key will ever open it.
    pub lasting: bool,
}

/// Whether the file, if one is set, can be used; a sentence when not.
pub fn check() -> Result<(), String> {
    read().map(|_| ()).map_err(|fault| fault.sentence())
}

/// The master keys for storing a key; none = no file is set. An error when a file is set and cannot be used: a key
/// is never stored in clear by mistake.
pub fn master_keys() -> Option<MasterKeys> {
    read().unwrap_or_else(|fault| fault.raise())
}

/// The form in which a key is stored. A session is warned once when that is in clear.
pub fn store(masters: Option<&MasterKeys>, place: Place, key: &[u8]) -> Vec<u8> {
    if masters.is_none() && !WARNED.replace(true) {
        Raise::new(
            PgSqlErrorCode::ERRCODE_WARNING,
            "keys are stored unencrypted",
        )
        .detail("The setting \"webhook.master_key_file\" is empty: whoever reads the tables, the data folder or a dump has the keys.")
        .hint("Set \"webhook.master_key_file\", then call webhook.reencrypt_secrets().")
        .warn();
    }
    let mut nonce = [0; NONCE];
    fill(&mut nonce);
    vault::store(masters, place, nonce, key).unwrap_or_else(|_| {
        Raise::new(
            PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
            "could not encrypt a key",
        )
        .raise()
    })
}

/// Opens a key that is needed now.
pub fn open(place: Place, stored: &[u8]) -> Zeroizing<Vec<u8>> {
    let masters = match read() {
        Ok(masters) => masters,
        // A key in clear needs no file.
        Err(fault) => match vault::open(None, place, stored) {
            Ok(key) => return key,
            Err(_) => fault.raise(),
        },
    };
    vault::open(masters.as_ref(), place, stored).unwrap_or_else(|locked| {
        Raise::new(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("key {} cannot be decrypted", place.key_id()),
        )
        .detail(sentence(&locked.to_string()))
        .hint("Add the master key under which it was stored to the file, as a further line.")
        .raise()
    })
}

/// Random bytes from the operating system.
pub fn fill(bytes: &mut [u8]) {
    if let Err(error) = getrandom::fill(bytes) {
        Raise::new(
            PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
            "could not read random bytes from the operating system",
        )
        .detail(format!("{error}."))
        .raise();
    }
}

fn read() -> Result<Option<MasterKeys>, Fault> {
    let path = settings::master_key_file();
    if path.is_empty() {
        return Ok(None);
    }
    let path = Path::new(&path);
    // A pipe must not make the server wait; the checks are of what was opened, not of what has the name by then.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY)
        .open(path)
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Fault::Missing,
            kind => Fault::Unreadable(kind.to_string()),
        })?;
    admit(&file, path)?;
    // As large as it may become: a growing buffer would leave copies behind.
    let mut text = Zeroizing::new(Vec::with_capacity(1024));
    file.take(LONGEST)
        .read_to_end(&mut text)
        .map_err(|error| Fault::Unreadable(error.kind().to_string()))?;
    MasterKeys::parse(&text).map(Some).map_err(Fault::Contents)
}

fn admit(file: &File, path: &Path) -> Result<(), Fault> {
    let unreadable = |error: std::io::Error| Fault::Unreadable(error.kind().to_string());
    let about = file.metadata().map_err(unreadable)?;
    if !about.is_file() {
        return Err(Fault::NoFile);
    }
    if about.uid() != nix::unistd::geteuid().as_raw() {
        return Err(Fault::Owner);
    }
    if about.mode() & 0o077 != 0 {
        return Err(Fault::Mode(about.mode() & 0o7777));
    }
    // SAFETY: set once by the postmaster, a C string for as long as the process lives.
    let data = unsafe {
        if pg_sys::DataDir.is_null() {
            return Ok(());
        }
        std::ffi::CStr::from_ptr(pg_sys::DataDir).to_string_lossy()
    };
    let inside = match (fs::canonicalize(path), fs::canonicalize(&*data)) {
        (Ok(path), Ok(data)) => path.starts_with(data),
        _ => false,
    };
    if inside { Err(Fault::Inside) } else { Ok(()) }
}

/// A detail is a whole sentence.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters
        .next()
        .map(|first| first.to_uppercase().to_string())
        .unwrap_or_default();
    format!("{first}{}.", characters.as_str())
}
