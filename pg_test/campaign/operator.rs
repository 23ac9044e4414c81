//! An operator who never rests: pauses and resumes endpoints, partners, event types and everything, and decides about
//! dead letters, while the server is ended around him. He remembers what he may have had skipped, and takes no
//! refusal for an answer but that of a state that has changed meanwhile.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

use postgres::{Client, Config, NoTls, SimpleQueryMessage};
use webhook_outbox_test::{dice::Dice, outbox::quoted, wait::wait_until};

/// The most pauses that are in force at once.
const PAUSES: usize = 3;

pub struct Operator {
    connection: Config,
    sql: Option<Client>,
    dice: Dice,
    /// What can be paused: scope and target.
    targets: Vec<(&'static str, Option<String>)>,
    /// Deliveries that he asked to skip, and when he asked first.
    pub skipped: BTreeMap<String, Instant>,
    /// The same for those he had tried again: they may leave out of order.
    pub retried: BTreeMap<String, Instant>,
    /// How often he did what.
    pub acts: BTreeMap<&'static str, usize>,
}

impl Operator {
    pub fn new(
        connection: Config,
        targets: Vec<(&'static str, Option<String>)>,
        seed: u64,
    ) -> Self {
        Operator {
            connection,
            sql: None,
            dice: Dice::new(seed),
            targets,
            skipped: BTreeMap::new(),
            retried: BTreeMap::new(),
            acts: BTreeMap::new(),
        }
    }

    /// Acts until told to stop.
    pub fn run(mut self, stop: &AtomicBool) -> Self {
        while !stop.load(Ordering::SeqCst) {
            let pause = 20 + self.dice.below(300);
            sleep(Duration::from_millis(pause));
            match self.act() {
                Ok(what) => *self.acts.entry(what).or_default() += 1,
                Err(error) => self.bear(&error),
            }
        }
        self
    }

    fn act(&mut self) -> Result<&'static str, postgres::Error> {
        match self.dice.below(100) {
            0..50 => self.pause_or_resume(),
            50..80 => self.decide(
                "select delivery_id from webhook.dead_letters order by event_id limit 20",
                25,
            ),
            80..90 => self.decide(
                "select delivery_id from webhook.deliveries where state in ('pending', 'retrying')
                  order by event_id limit 20",
                10,
            ),
            _ => Ok("rest"),
        }
    }

    fn pause_or_resume(&mut self) -> Result<&'static str, postgres::Error> {
        let paused: Vec<(String, Option<String>)> = self
            .rows("select scope, nullif(target, '') from webhook.pauses")?
            .into_iter()
            .map(|mut row| {
                let target = row.pop().flatten();
                (row.pop().flatten().unwrap_or_default(), target)
            })
            .collect();
        let everything = paused.iter().any(|(scope, _)| scope == "all");
        if !paused.is_empty() && (everything || paused.len() >= PAUSES || self.dice.percent(50)) {
            let (scope, target) = self.dice.pick(&paused).clone();
            let target = literal(target.as_deref());
            self.run_one(&format!(
                "select webhook.resume({}, {target}, 'it is over')",
                quoted(&scope)
            ))?;
            return Ok("resume");
        }
        let (scope, target) = self.dice.pick(&self.targets).clone();
        if paused.iter().any(|(s, t)| *s == scope && *t == target) {
            return Ok("rest");
        }
        let target = literal(target.as_deref());
        self.run_one(&format!(
            "select webhook.pause('{scope}', {target}, 'for a moment')"
        ))?;
        Ok("pause")
    }

    /// Skips or retries some of what a query finds: so many of a hundred times it is skipped.
    fn decide(&mut self, query: &str, skips: u64) -> Result<&'static str, postgres::Error> {
        let found: Vec<String> = self
            .rows(query)?
            .into_iter()
            .filter_map(|row| row.into_iter().next().flatten())
            .collect();
        if found.is_empty() {
            return Ok("rest");
        }
        let count = 1 + usize::try_from(self.dice.below(found.len() as u64)).expect("few");
        let some = &found[..count];
        let skip = self.dice.percent(skips);
        let asked = if skip {
            &mut self.skipped
        } else {
            &mut self.retried
        };
        // Before it is asked: a crash may take the answer away, and it may be done all the same.
        let now = Instant::now();
        for id in some {
            asked.entry(id.clone()).or_insert(now);
        }
        let (verb, list) = (if skip { "skip" } else { "retry" }, some.join("','"));
        self.run_one(&format!(
            "select webhook.{verb}(array['{list}']::text[], 'decided by dice')"
        ))?;
        Ok(verb)
    }

    fn rows(&mut self, query: &str) -> Result<Vec<Vec<Option<String>>>, postgres::Error> {
        let messages = self.sql().simple_query(query)?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        Ok(rows
            .map(|row| {
                (0..row.len())
                    .map(|i| row.get(i).map(str::to_owned))
                    .collect()
            })
            .collect())
    }

    fn run_one(&mut self, statement: &str) -> Result<(), postgres::Error> {
        self.sql().batch_execute(statement)
    }

    fn sql(&mut self) -> &mut Client {
        let connection = self.connection.clone();
        self.sql.get_or_insert_with(|| {
            wait_until("the server is back", Duration::from_secs(60), || {
                connection.connect(NoTls).ok()
            })
        })
    }

    /// The end of the session is borne, and a state that changed between the look and the act; nothing else.
    fn bear(&mut self, error: &postgres::Error) {
        let Some(told) = error.as_db_error() else {
            self.sql = None;
            return;
        };
        let code = told.code().code();
        // Operator intervention: the server goes down, or is not up yet.
        if code.starts_with("57P") {
            self.sql = None;
            return;
        }
        assert_eq!(code, "55000", "{told}");
        *self.acts.entry("refused").or_default() += 1;
    }
}

fn literal(text: Option<&str>) -> String {
    text.map_or("null".to_owned(), quoted)
}
