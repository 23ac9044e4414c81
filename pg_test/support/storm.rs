//! Sessions that emit in every way a transaction can end: committed, rolled back, in savepoints of which some are
//! rolled back, prepared and then committed or not, cut off. They survive crashes of the server, and keep for each
//! event what its session was told of its fate. What the server kept in truth is for the reader to ask it.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread::{self, sleep},
    time::{Duration, Instant},
};

use postgres::{Client, Config, NoTls};

use crate::{dice::Dice, wait::wait_until};

/// What a session was told of an event it emitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    /// The commit was confirmed.
    Committed(Instant),
    /// It was rolled back, or its session ended before it said commit.
    RolledBack,
    /// No answer came, or it may be lost because the session commits asynchronously.
    InDoubt,
}

/// What all emitters share.
pub struct Storm<'a> {
    /// How to connect to the database. The server itself is not held: whoever ends it must be able to.
    pub connection: Config,
    /// Partners of which one is picked for each event.
    pub partners: &'a [&'a str],
    /// Event types of which one is picked for each event.
    pub types: &'a [&'a str],
    /// Subjects of each emitter, of which one is picked for each event; 0 = events have none. No two emitters share
    /// one, and an emitter goes on when its transaction has ended: the ids of a subject's events are in the order of
    /// their commits.
    pub subjects: u64,
    /// The longest pause between transactions.
    pub pause: Duration,
    /// Ends the storm.
    pub stop: AtomicBool,
    /// Events emitted so far, whatever became of them.
    pub emitted: AtomicUsize,
}

impl Storm<'_> {
    /// Lets so many emitters run until `enough`, which is told how many events were emitted. Returns what the
    /// sessions know of their events, by mark.
    ///
    /// # Panics
    /// When an emitter ends early.
    pub fn blow_until(
        &self,
        emitters: u64,
        seed: u64,
        mut enough: impl FnMut(usize) -> bool,
    ) -> BTreeMap<String, Fate> {
        thread::scope(|scope| {
            let emitters: Vec<_> = (0..emitters)
                .map(|n| {
                    // One of them does not wait for its commits to be on disk.
                    let careless = n == emitters - 1;
                    let seed = seed.wrapping_mul(17).wrapping_add(n);
                    let emitter = Emitter::new(self, &format!("e{n}"), careless, seed);
                    scope.spawn(move || emitter.run())
                })
                .collect();
            // A panic below must not leave them running.
            let ending = Ending(&self.stop);
            while !enough(self.emitted.load(Ordering::SeqCst)) {
                let all_run = emitters.iter().all(|emitter| !emitter.is_finished());
                assert!(all_run, "an emitter has ended early");
            }
            drop(ending);
            let fates = emitters
                .into_iter()
                .map(|emitter| emitter.join().expect("an emitter"));
            fates.flatten().collect()
        })
    }
}

/// Raises a flag when it is dropped, also by a panic.
pub struct Ending<'a>(pub &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A transaction that is prepared, or may be.
struct Prepared {
    name: String,
    commit: bool,
    /// The second phase was begun: if nothing is prepared any more, it was carried out.
    decided: bool,
    marks: Vec<String>,
}

/// One emitting session.
struct Emitter<'a> {
    storm: &'a Storm<'a>,
    name: String,
    careless: bool,
    dice: Dice,
    sql: Option<Client>,
    count: usize,
    prepared: Option<Prepared>,
    fates: BTreeMap<String, Fate>,
}

impl<'a> Emitter<'a> {
    /// An emitter; its events are marked with its name and a number in their correlation_id. A careless one sets
    /// synchronous_commit = off, so that a crash may take back what it was told.
    fn new(storm: &'a Storm<'a>, name: &str, careless: bool, seed: u64) -> Emitter<'a> {
        Emitter {
            storm,
            name: name.to_owned(),
            careless,
            dice: Dice::new(seed),
            sql: None,
            count: 0,
            prepared: None,
            fates: BTreeMap::new(),
        }
    }

    /// Emits until the storm ends. Returns what the session knows of its events, by mark.
    fn run(mut self) -> BTreeMap<String, Fate> {
        while !self.storm.stop.load(Ordering::SeqCst) || self.prepared.is_some() {
            let pause = self.dice.below(micros(self.storm.pause));
            sleep(Duration::from_micros(pause));
            // An error is the end of the session: what was under way has its fate already.
            if self.act().is_err() {
                self.sql = None;
            }
        }
        self.fates
    }

    fn act(&mut self) -> Result<(), postgres::Error> {
        self.connect();
        if self.prepared.is_some() {
            return self.settle();
        }
        match self.dice.below(1_000) {
            0..150 => self.one_statement(),
            150..400 => self.plain("commit"),
            400..500 => self.plain("rollback"),
            500..700 => self.savepoints(),
            700..900 => self.two_phases(),
            900..969 => self.one_set(20),
            // More than the leader reads at once.
            969 => self.one_set(700),
            _ => self.cut_off(),
        }
    }

    fn connect(&mut self) {
        if self.sql.is_some() {
            return;
        }
        let storm = self.storm;
        let mut sql = wait_until("the server is back", Duration::from_secs(60), || {
            storm.connection.connect(NoTls).ok()
        });
        let setting = if self.careless { "off" } else { "on" };
        // Should the server have gone again, the next statement says so.
        let _ = sql.batch_execute(&format!("set synchronous_commit = {setting}"));
        self.sql = Some(sql);
    }

    fn sql(&mut self) -> &mut Client {
        self.sql.as_mut().expect("connected")
    }

    /// The emit is its own transaction: with the answer, the fate is lost, too.
    fn one_statement(&mut self) -> Result<(), postgres::Error> {
        let mark = self.mark();
        let statement = self.emit(&mark);
        let result = self.sql().batch_execute(&statement);
        self.told(&[mark], &result);
        result
    }

    fn plain(&mut self, end: &str) -> Result<(), postgres::Error> {
        self.sql().batch_execute("begin")?;
        let marks = self.emit_some()?;
        self.end(end, &marks)
    }

    fn savepoints(&mut self) -> Result<(), postgres::Error> {
        self.sql().batch_execute("begin")?;
        let mut marks = self.emit_some()?;
        self.sql().batch_execute("savepoint outer_one")?;
        self.emit_some()?;
        if self.dice.percent(50) {
            self.sql().batch_execute("savepoint inner_one")?;
            self.emit_some()?;
            self.sql().batch_execute("release inner_one")?;
        }
        self.sql().batch_execute("rollback to outer_one")?;
        self.sql().batch_execute("savepoint another")?;
        marks.extend(self.emit_some()?);
        self.sql().batch_execute("release another")?;
        self.end("commit", &marks)
    }

    fn one_set(&mut self, size: usize) -> Result<(), postgres::Error> {
        let marks: Vec<String> = (0..size).map(|_| self.mark()).collect();
        let list = marks
            .iter()
            .map(|mark| format!("'{mark}'"))
            .collect::<Vec<_>>()
            .join(",");
        let (partner, kind) = self.partner_and_type();
        let subject = match self.storm.subjects {
            0 => String::new(),
            subjects => format!(
                ", subject_type => 'account', subject_id => format('{}-%s', n % {subjects})",
                self.name
            ),
        };
        let statement = format!(
            "select webhook.emit('{kind}', '{partner}', jsonb_build_object('mark', m), correlation_id => m{subject})
               from unnest(array[{list}]) with ordinality as u (m, n)"
        );
        let result = self.sql().batch_execute(&statement);
        self.told(&marks, &result);
        result
    }

    fn two_phases(&mut self) -> Result<(), postgres::Error> {
        self.sql().batch_execute("begin")?;
        let marks = self.emit_some()?;
        let name = marks.last().cloned().unwrap_or_default();
        self.prepared = Some(Prepared {
            name: name.clone(),
            commit: self.dice.percent(60),
            decided: false,
            marks,
        });
        self.sql()
            .batch_execute(&format!("prepare transaction '{name}'"))?;
        let pause = self.dice.below(200);
        sleep(Duration::from_millis(pause));
        self.settle()
    }

    /// Carries out what was decided about the prepared transaction, if it is there.
    fn settle(&mut self) -> Result<(), postgres::Error> {
        let Some(Prepared {
            name,
            commit,
            decided,
            ..
        }) = &self.prepared
        else {
            return Ok(());
        };
        let (name, commit, decided) = (name.clone(), *commit, *decided);
        let there = !self
            .sql()
            .query("select from pg_prepared_xacts where gid = $1", &[&name])?
            .is_empty();
        if there {
            if let Some(prepared) = &mut self.prepared {
                prepared.decided = true;
            }
            let verb = if commit { "commit" } else { "rollback" };
            self.sql()
                .batch_execute(&format!("{verb} prepared '{name}'"))?;
        }
        let fate = if commit && (there || decided) {
            Fate::Committed(Instant::now())
        } else {
            Fate::RolledBack
        };
        for mark in self.prepared.take().map(|p| p.marks).unwrap_or_default() {
            self.fates.insert(mark, fate);
        }
        Ok(())
    }

    /// The session ends without a word.
    fn cut_off(&mut self) -> Result<(), postgres::Error> {
        self.sql().batch_execute("begin")?;
        self.emit_some()?;
        self.sql = None;
        Ok(())
    }

    /// Emits up to four events in the transaction under way. Until told otherwise they are rolled back.
    fn emit_some(&mut self) -> Result<Vec<String>, postgres::Error> {
        let count = 1 + self.dice.below(4);
        let mut marks = Vec::new();
        for _ in 0..count {
            let mark = self.mark();
            let statement = self.emit(&mark);
            self.sql().batch_execute(&statement)?;
            marks.push(mark);
            if self.dice.percent(20) {
                let pause = self.dice.below(5_000);
                sleep(Duration::from_micros(pause));
            }
        }
        Ok(marks)
    }

    fn end(&mut self, how: &str, marks: &[String]) -> Result<(), postgres::Error> {
        let result = self.sql().batch_execute(how);
        if how == "commit" {
            self.told(marks, &result);
        }
        result
    }

    /// The answer to a commit.
    fn told(&mut self, marks: &[String], answer: &Result<(), postgres::Error>) {
        let fate = match answer {
            Ok(()) if !self.careless => Fate::Committed(Instant::now()),
            _ => Fate::InDoubt,
        };
        for mark in marks {
            self.fates.insert(mark.clone(), fate);
        }
    }

    fn mark(&mut self) -> String {
        self.count += 1;
        self.storm.emitted.fetch_add(1, Ordering::SeqCst);
        let mark = format!("{}-{}", self.name, self.count);
        self.fates.insert(mark.clone(), Fate::RolledBack);
        mark
    }

    fn emit(&mut self, mark: &str) -> String {
        let (partner, kind) = self.partner_and_type();
        let subject = match self.storm.subjects {
            0 => String::new(),
            subjects => format!(
                ", subject_type => 'account', subject_id => '{}-{}'",
                self.name,
                self.dice.below(subjects)
            ),
        };
        format!(
            r#"select webhook.emit('{kind}', '{partner}', '{{"mark": "{mark}"}}', correlation_id => '{mark}'{subject})"#
        )
    }

    fn partner_and_type(&mut self) -> (&'a str, &'a str) {
        let storm = self.storm;
        (
            *self.dice.pick(storm.partners),
            *self.dice.pick(storm.types),
        )
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
