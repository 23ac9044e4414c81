//! Keys at rest: what opens, what does not, and that nothing shows itself.

use proptest::prelude::*;

use super::*;

const ROW: Place = Place::Signing {
    key_id: 7,
    endpoint_id: 8,
};

fn line(byte: u8) -> String {
    STANDARD.encode([byte; 32])
}

fn masters(lines: &[u8]) -> MasterKeys {
    let text: Vec<String> = lines.iter().map(|byte| line(*byte)).collect();
    MasterKeys::parse(text.join("\n").as_bytes()).unwrap()
}

fn stored(masters: Option<&MasterKeys>) -> Vec<u8> {
    store(masters, ROW, [5; NONCE], &[9; 32]).unwrap()
}

#[test]
fn an_encrypted_key_opens_under_its_master_key_only() {
    let old = masters(&[1]);
    let sealed = stored(Some(&old));
    assert_eq!(sealed.len(), 1 + ID + NONCE + 32 + TAG);
    assert!(!sealed.windows(8).any(|bytes| bytes == [9; 8]));
    assert_eq!(open(Some(&old), ROW, &sealed).unwrap()[..], [9; 32]);
    assert_eq!(open(None, ROW, &sealed), Err(Locked::NoMasterKey));
    assert_eq!(
        open(Some(&masters(&[2])), ROW, &sealed),
        Err(Locked::OtherMasterKey(old.current_id()))
    );
}

#[test]
fn the_first_line_encrypts_and_the_others_still_decrypt() {
    let sealed = stored(Some(&masters(&[1])));
    let both = masters(&[2, 1]);
    assert!(!up_to_date(&both, &sealed));
    assert_eq!(open(Some(&both), ROW, &sealed).unwrap()[..], [9; 32]);
    let again = stored(Some(&both));
    assert!(up_to_date(&both, &again));
    assert_eq!(
        open(Some(&masters(&[2])), ROW, &again).unwrap()[..],
        [9; 32]
    );
}

#[test]
fn a_key_in_clear_opens_with_and_without_a_master_key_and_is_not_up_to_date() {
    let clear = stored(None);
    assert_eq!(open(None, ROW, &clear).unwrap()[..], [9; 32]);
    let masters = masters(&[1]);
    assert_eq!(open(Some(&masters), ROW, &clear).unwrap()[..], [9; 32]);
    assert!(!up_to_date(&masters, &clear));
}

#[test]
fn a_ciphertext_opens_in_its_own_row_only() {
    let masters = masters(&[1]);
    let sealed = stored(Some(&masters));
    for other in [
        Place::Signing {
            key_id: 7,
            endpoint_id: 9,
        },
        Place::Signing {
            key_id: 8,
            endpoint_id: 8,
        },
        Place::Seal {
            key_id: 7,
            origin: 8,
        },
    ] {
        assert_eq!(
            open(Some(&masters), other, &sealed),
            Err(Locked::Altered),
            "{other:?}"
        );
    }
}

#[test]
fn a_file_of_master_keys_is_read_strictly() {
    let good = line(1);
    assert!(MasterKeys::parse(good.as_bytes()).is_ok());
    assert!(MasterKeys::parse(format!("{good}\n{}\n", line(2)).as_bytes()).is_ok());
    for (text, fault) in [
        (String::new(), KeyFileFault::Empty),
        ("\n".to_owned(), KeyFileFault::Empty),
        (format!("{good}\n\n"), KeyFileFault::Line(2)),
        (format!("\n{good}"), KeyFileFault::Line(1)),
        (format!("{good}\r\n"), KeyFileFault::Line(1)),
        (format!(" {good}"), KeyFileFault::Line(1)),
        (format!("{good}\n# old"), KeyFileFault::Line(2)),
        (good.trim_end_matches('=').to_owned(), KeyFileFault::Line(1)),
        // The last character carries bits that belong to no byte; they must be zero.
        (good.replace("E=", "F="), KeyFileFault::Line(1)),
        (STANDARD.encode([1; 31]), KeyFileFault::Line(1)),
        (STANDARD.encode([1; 33]), KeyFileFault::Line(1)),
        (vec![good.clone(); 17].join("\n"), KeyFileFault::TooMany),
    ] {
        assert_eq!(
            MasterKeys::parse(text.as_bytes()).unwrap_err(),
            fault,
            "{text:?}"
        );
    }
    assert!(MasterKeys::parse(vec![good; 16].join("\n").as_bytes()).is_ok());
}

#[test]
fn master_keys_never_show_themselves() {
    assert_eq!(format!("{:?}", masters(&[1])), "MasterKeys(..)");
    let id = masters(&[1]).current_id();
    assert_eq!(id.len(), 16);
    assert!(!line(1).contains(&id));
}

proptest! {
    #[test]
    fn what_was_stored_comes_back(
        key in proptest::collection::vec(any::<u8>(), 0..=64), nonce: [u8; NONCE], master: u8, encrypted: bool,
        key_id: i64, owner: i64, seal: bool,
    ) {
        let masters = masters(&[master]);
        let masters = encrypted.then_some(&masters);
        let place = if seal {
            Place::Seal { key_id, origin: owner }
        } else {
            Place::Signing { key_id, endpoint_id: owner }
        };
        let stored = store(masters, place, nonce, &key).unwrap();
        prop_assert_eq!(&open(masters, place, &stored).unwrap()[..], &key[..]);
    }

    #[test]
    fn a_single_changed_bit_is_found(at in 0usize..81, bit in 0u8..8) {
        let masters = masters(&[1]);
        let mut sealed = stored(Some(&masters));
        sealed[at] ^= 1 << bit;
        // The lowest bit of the first byte makes it a key in clear: one of a length that no key has.
        if let Ok(key) = open(Some(&masters), ROW, &sealed) {
            prop_assert!(at == 0 && key.len() == 80);
        }
    }

    #[test]
    fn nothing_stored_makes_it_panic(stored in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = open(Some(&masters(&[1])), ROW, &stored);
        let _ = open(None, ROW, &stored);
    }

    #[test]
    fn no_file_makes_it_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = MasterKeys::parse(&text);
    }
}
