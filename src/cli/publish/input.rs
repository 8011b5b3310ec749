//! What is published: bodies from the command line, a file, stdin or its lines; their ids and copies.

mod lines;

use std::{
    io::{self, Read},
    path::Path,
    sync::Arc,
    vec,
};

use tokio::sync::mpsc;
use uuid::Uuid;

#[cfg(fuzzing)]
pub use self::lines::lines_of;
use self::lines::read_lines;
use super::PublishArgs;
use crate::cli::Failure;

/// One message to be published once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) id: Arc<str>,
    pub(super) body: Arc<[u8]>,
    pub(super) place: Place,
    /// Counts from 1 where messages are repeated, otherwise 0.
    pub(super) copy: u32,
}

/// Where a message comes from; counts from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The only one.
    Only,
    Line(u64),
    Index(u64),
}

/// Yields the items in the order of publishing.
pub(super) struct Input {
    bodies: Bodies,
    ids: Ids,
    /// Messages of each body.
    count: u64,
    /// Copies of each message.
    repeat: u32,
    /// The message being repeated, the copies it still gets, and the messages its body still gets.
    current: Option<(Item, u32, u64)>,
    /// Messages so far.
    number: u64,
    /// Messages left out at the start.
    skip: u64,
    shuffle: Option<u64>,
    shuffled: Option<vec::IntoIter<Item>>,
}

enum Bodies {
    One(Option<Arc<[u8]>>),
    /// The number of each message.
    Numbers(Option<()>),
    Lines {
        lines: mpsc::Receiver<io::Result<Vec<u8>>>,
        read: u64,
    },
}

#[derive(Clone, Debug)]
enum Ids {
    Given(Arc<str>),
    Numbered(String),
    Random,
}

impl Input {
    /// Opens and, but for lines, reads what is to be published.
    pub(super) fn open(args: &PublishArgs) -> Result<Self, Failure> {
        let ids = match (&args.message_id, &args.id_prefix) {
            (Some(id), _) => Ids::Given(id.as_str().into()),
            (None, Some(prefix)) => Ids::Numbered(prefix.clone()),
            (None, None) => Ids::Random,
        };
        let seed = args.seed.unwrap_or_else(|| Uuid::now_v7().as_u64_pair().1);
        Ok(Self {
            bodies: Bodies::open(args)?,
            ids,
            count: args.count.unwrap_or(1),
            repeat: args.repeat,
            current: None,
            number: 0,
            skip: args.skip,
            shuffle: args.shuffle.then_some(seed),
            shuffled: None,
        })
    }

    /// How many items there are, if that is known before reading them.
    pub(super) fn total(&self) -> Option<u64> {
        match self.bodies {
            Bodies::One(_) | Bodies::Numbers(_) => {
                Some(self.count.saturating_sub(self.skip).saturating_mul(u64::from(self.repeat)))
            }
            Bodies::Lines { .. } => None,
        }
    }

    /// The order is random: what was not sent is no range.
    pub(super) fn is_shuffled(&self) -> bool {
        self.shuffle.is_some()
    }

    /// As long as any id will be.
    pub(super) fn longest_id(&self) -> String {
        match &self.ids {
            Ids::Given(id) => id.to_string(),
            Ids::Numbered(prefix) => numbered(prefix, u64::MAX),
            Ids::Random => Uuid::max().to_string(),
        }
    }

    /// The next item, or what went wrong in reading it; nothing comes after that.
    ///
    /// # Cancellation
    ///
    /// Nothing is lost.
    pub(super) async fn next(&mut self) -> Option<Result<Item, String>> {
        let Some(seed) = self.shuffle else {
            return self.next_kept().await;
        };
        if self.shuffled.is_none() {
            let mut items = Vec::new();
            while let Some(item) = self.next_kept().await {
                match item {
                    Ok(item) => items.push(item),
                    Err(error) => return Some(Err(error)),
                }
            }
            shuffle(&mut items, seed);
            self.shuffled = Some(items.into_iter());
        }
        self.shuffled.as_mut()?.next().map(Ok)
    }

    async fn next_kept(&mut self) -> Option<Result<Item, String>> {
        loop {
            let item = self.next_in_order().await?;
            if item.is_err() || self.number > self.skip {
                return Some(item);
            }
        }
    }

    async fn next_in_order(&mut self) -> Option<Result<Item, String>> {
        match &mut self.current {
            Some((item, copies, _)) if *copies > 0 => {
                *copies -= 1;
                item.copy += 1;
            }
            Some((item, copies, messages)) if *messages > 0 => {
                *messages -= 1;
                *copies = self.repeat - 1;
                self.number += 1;
                item.id = self.ids.of(self.number);
                item.copy = u32::from(self.repeat > 1);
                if let Place::Index(index) = &mut item.place {
                    *index = self.number;
                }
                if let Bodies::Numbers(_) = self.bodies {
                    item.body = number_body(self.number);
                }
            }
            _ => {
                let (body, line) = match self.bodies.next(self.number + 1).await? {
                    Ok(body) => body,
                    Err(error) => return Some(Err(error)),
                };
                self.number += 1;
                let place = match line {
                    Some(line) => Place::Line(line),
                    None if self.count == 1 => Place::Only,
                    None => Place::Index(self.number),
                };
                let id = self.ids.of(self.number);
                let item = Item { id, body, place, copy: u32::from(self.repeat > 1) };
                self.current = Some((item, self.repeat - 1, self.count - 1));
            }
        }
        self.current.as_ref().map(|(item, ..)| Ok(item.clone()))
    }
}

impl Ids {
    fn of(&self, number: u64) -> Arc<str> {
        match self {
            Ids::Given(id) => id.clone(),
            Ids::Numbered(prefix) => numbered(prefix, number).into(),
            Ids::Random => Uuid::now_v7().to_string().into(),
        }
    }
}

fn numbered(prefix: &str, number: u64) -> String {
    format!("{prefix}-{number}")
}

fn number_body(number: u64) -> Arc<[u8]> {
    number.to_string().into_bytes().into()
}

impl Bodies {
    fn open(args: &PublishArgs) -> Result<Self, Failure> {
        let one = |body: Vec<u8>| Ok(Self::One(Some(body.into())));
        match (&args.body, &args.file, &args.lines) {
            (Some(body), _, _) if body == "-" => one(read(Path::new("-"))?),
            (Some(body), _, _) => one(body.clone().into_bytes()),
            (None, Some(file), _) => one(read(file)?),
            (None, None, Some(lines)) => {
                Ok(Self::Lines { lines: read_lines(open(lines)?).map_err(Failure::failed)?, read: 0 })
            }
            (None, None, None) if args.count.is_some() => Ok(Self::Numbers(Some(()))),
            (None, None, None) => Err(Failure::usage(
                "there is nothing to publish: give a BODY, --file FILE, --lines FILE, or - to read stdin",
            )),
        }
    }

    /// The next body and, where there are lines, its line number.
    async fn next(&mut self, number: u64) -> Option<Result<(Arc<[u8]>, Option<u64>), String>> {
        match self {
            Self::One(body) => body.take().map(|body| Ok((body, None))),
            Self::Numbers(more) => more.take().map(|()| Ok((number_body(number), None))),
            Self::Lines { lines, read } => {
                let line = lines.recv().await?;
                *read += 1;
                Some(match line {
                    Ok(line) => Ok((line.into(), Some(*read))),
                    Err(error) => Err(format!("cannot read line {read}: {error}")),
                })
            }
        }
    }
}

fn open(path: &Path) -> Result<Box<dyn Read + Send>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let file = std::fs::File::open(path).map_err(|error| unreadable(path, &error))?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(Failure::usage(format!("cannot read {}: it is a directory", path.display())));
    }
    Ok(Box::new(file))
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    open(path)?.read_to_end(&mut body).map_err(|error| unreadable(path, &error))?;
    Ok(body)
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let name = if path == Path::new("-") { "stdin".into() } else { path.display().to_string() };
    Failure::usage(format!("cannot read {name}: {error}"))
}

/// Fisher and Yates, by SplitMix64: the same seed gives the same order on every machine.
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed;
    let mut random = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    for last in (1..items.len()).rev() {
        // The bias is below 2^-32 for any list that fits into memory.
        let pick = (u128::from(random()) * (last as u128 + 1)) >> 64;
        items.swap(last, pick as usize);
    }
}

#[cfg(test)]
mod tests;
