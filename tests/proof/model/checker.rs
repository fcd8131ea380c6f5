//! A breadth-first model checker: it visits every reachable state once.
//!
//! Safety is checked on steps (a step says which properties it breaks), so the first violation found is
//! also the shortest. "Can still settle" is checked on the finished graph, backwards from the settled
//! states over steps without a fault: a job must not need a fault to settle.
//!
//! It is not `stateright`, because that library cannot express the second question (does every reachable
//! state have a path to a settled one?): it knows *always*, *sometimes* and *eventually*, and it brings a
//! web server.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A model to check: its states, the steps out of each, and which states are settled.
pub(crate) trait Model {
    type State: Copy + Eq + Hash;
    type Step: Copy + Display;

    fn start(&self) -> Self::State;
    /// Appends every possible step in `state`.
    fn steps(&self, state: &Self::State, next: &mut Vec<Next<Self::State, Self::Step>>);
    /// Whether all work is done in `state`.
    fn settled(&self, state: &Self::State) -> bool;
    /// Describes a state in one line, for a trace.
    fn describe(&self, state: &Self::State) -> String;
}

/// One step with the state after it, and the properties (a set of bits) that it breaks.
pub(crate) struct Next<S, T> {
    pub(crate) step: T,
    pub(crate) state: S,
    pub(crate) broken: u8,
    pub(crate) fault: bool,
}

/// The result of a search.
pub(crate) struct Found<S> {
    /// Every reached state, in order of its distance from the start.
    pub(crate) states: Vec<S>,
    /// The shortest way to break one of the requested properties: its steps, and the broken bits.
    pub(crate) broken: Option<(Trace, u8)>,
    /// The shortest way to a state that cannot settle; only computed if no property was broken.
    pub(crate) stuck: Option<Trace>,
}

/// The steps of a run, each with the state after it.
pub(crate) struct Trace(pub(crate) Vec<(String, String)>);

impl Trace {
    /// Prints a line for each step, with the state after it.
    pub(crate) fn print(&self, title: &str) {
        println!("\n{title}, {} steps:", self.0.len());
        for (n, (step, state)) in self.0.iter().enumerate() {
            println!("{:4}. {step:<52} {state}", n + 1);
        }
    }
}

/// Checks that the model breaks one of `promises`, and that the shortest way has `steps` steps.
pub(crate) fn breaks<M: Model>(title: &str, model: &M, promises: u8, steps: usize) {
    let found = explore(model, promises);
    check(title, found.broken.map(|(trace, _)| trace), found.states.len(), steps);
}

/// Checks that the model reaches a state that cannot settle, and that the shortest way has `steps` steps.
pub(crate) fn sticks<M: Model>(title: &str, model: &M, steps: usize) {
    let found = explore(model, 0);
    check(title, found.stuck, found.states.len(), steps);
}

fn check(title: &str, trace: Option<Trace>, states: usize, steps: usize) {
    let Some(trace) = trace else { panic!("{title}: not found in {states} states") };
    trace.print(title);
    assert_eq!(trace.0.len(), steps, "{title}: the length of the shortest trace");
}

/// Explores all states, or stops at the first step that breaks one of the properties in `wanted`.
pub(crate) fn explore<M: Model>(model: &M, wanted: u8) -> Found<M::State> {
    let mut search = Search::new(model);
    let mut next = Vec::new();
    let mut at = 0;
    while at < search.states.len() {
        let state = search.states[at];
        model.steps(&state, &mut next);
        for (choice, taken) in next.drain(..).enumerate() {
            if taken.broken & wanted != 0 {
                let mut trace = search.trace(at);
                trace.0.push((taken.step.to_string(), model.describe(&taken.state)));
                let broken = Some((trace, taken.broken));
                return Found { states: search.states, broken, stuck: None };
            }
            let to = search.number(taken.state, at, choice);
            if !taken.fault {
                search.edges.push((narrow(to), narrow(at)));
            }
        }
        at += 1;
    }
    let stuck = search.first_stuck().map(|state| search.trace(state));
    Found { states: search.states, broken: None, stuck }
}

/// The states found so far, in the order of their discovery, and how each was found.
struct Search<'a, M: Model> {
    model: &'a M,
    states: Vec<M::State>,
    numbers: HashMap<M::State, u32, BuildHasherDefault<Mixer>>,
    /// The state from which a state was first reached, and the index of that step.
    parents: Vec<(u32, u32)>,
    /// The steps without a fault, backwards.
    edges: Vec<(u32, u32)>,
}

impl<'a, M: Model> Search<'a, M> {
    fn new(model: &'a M) -> Self {
        let start = model.start();
        let mut numbers = HashMap::default();
        numbers.insert(start, 0);
        Self { model, states: vec![start], numbers, parents: vec![(0, 0)], edges: Vec::new() }
    }

    fn number(&mut self, state: M::State, parent: usize, choice: usize) -> usize {
        let fresh = self.states.len();
        let number = *self.numbers.entry(state).or_insert(narrow(fresh)) as usize;
        if number == fresh {
            self.states.push(state);
            self.parents.push((narrow(parent), narrow(choice)));
        }
        number
    }

    fn trace(&self, mut at: usize) -> Trace {
        let mut steps = Vec::new();
        let mut next = Vec::new();
        while at != 0 {
            let (parent, choice) = self.parents[at];
            self.model.steps(&self.states[parent as usize], &mut next);
            let step = next.drain(..).nth(choice as usize).unwrap().step;
            steps.push((step.to_string(), self.model.describe(&self.states[at])));
            at = parent as usize;
        }
        steps.reverse();
        Trace(steps)
    }

    /// The state nearest to the start from which no settled one can be reached without a fault.
    fn first_stuck(&mut self) -> Option<usize> {
        // Counting sort of the backward edges: `from[n]..from[n + 1]` are those into state `n`.
        let mut from = vec![0_u32; self.states.len() + 1];
        for (to, _) in &self.edges {
            from[*to as usize + 1] += 1;
        }
        for n in 1..from.len() {
            from[n] += from[n - 1];
        }
        self.edges.sort_unstable();
        let mut saved = vec![false; self.states.len()];
        let mut todo = Vec::new();
        for (n, state) in self.states.iter().enumerate() {
            if self.model.settled(state) {
                saved[n] = true;
                todo.push(n);
            }
        }
        while let Some(n) = todo.pop() {
            for edge in from[n]..from[n + 1] {
                let before = self.edges[edge as usize].1 as usize;
                if !saved[before] {
                    saved[before] = true;
                    todo.push(before);
                }
            }
        }
        saved.iter().position(|saved| !saved)
    }
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).expect("fewer than 2^32 states")
}

/// A multiplicative hash: tests are built without optimisation, where the standard hash would take most of
/// the time. States are compared completely, so a collision costs time but does not lose a state.
#[derive(Default)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    /// The numbers of enum variants come here.
    fn write_isize(&mut self, number: isize) {
        self.write_u64(number.cast_unsigned() as u64);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
