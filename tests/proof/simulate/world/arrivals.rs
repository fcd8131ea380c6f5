//! The steps that make deliveries: one, several at once, and those that must be refused.

use std::time::Duration;

use hooklatch::model::GroupKey;
use hooklatch::store::{Accept, Accepted, Delay, FailedDelivery, Group, NewJob};

use super::super::compare;
use super::super::deliveries::{self, Delivery};
use super::super::model::Wanted;

use super::{HANDLERS, World};

impl World<'_> {
    pub(super) fn any_delivery(&mut self) -> Delivery {
        let stored = self.memory.model.events.len();
        if stored == 0 || self.random.one_in(2) {
            return Delivery::any(&mut self.random, self.pool);
        }
        let at = self.random.below(stored);
        let known = self.memory.model.events.values().nth(at).unwrap().delivery.clone();
        known.again(&mut self.random, self.pool)
    }

    pub(super) fn any_handlers(&mut self) -> Vec<&'static str> {
        match self.random.below(4) {
            0 => Vec::new(),
            1 => vec![*self.random.pick(&HANDLERS)],
            _ => self.random.some(&HANDLERS),
        }
    }

    /// Signs and verifies a delivery, and adds it to the model. Returns the store's input and its expected
    /// answer.
    pub(super) fn expect(&mut self, delivery: &Delivery, wanted: &[Wanted]) -> (Accept, Accepted) {
        let lag = Duration::from_secs(self.random.below(300) as u64);
        let sent = delivery.send(&self.keys, self.clock.now().before(lag));
        let verified = sent.verify(&self.keys, delivery.source, self.clock.now()).unwrap();
        delivery.check(&verified);
        let expected = self.memory.model.accept(delivery, wanted, self.clock.now().0);
        let accept = Accept {
            source: delivery.source.parse().unwrap(),
            received_at: self.clock.now(),
            on_redelivery: hooklatch::model::OnRedelivery::Ignore,
            delivery: verified,
            jobs: wanted.iter().map(new_job).collect(),
        };
        (accept, expected)
    }

    /// What some handlers want of a delivery: one has no groups, and the others each a few, whose rule may change with
    /// the configuration.
    pub(super) fn any_wanted(&mut self, delivery: &Delivery) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        for handler in self.any_handlers() {
            let key = format!("k{}", delivery.content.bytes().map(usize::from).sum::<usize>() % 3);
            let rule = self.rules.iter().find(|(name, _)| *name == handler).map(|(_, rule)| *rule);
            let delay = self.random.one_in(4).then(|| {
                let wait = 1000 * (1 + self.random.below(120) as i64);
                (wait, wait * (1 + self.random.below(3) as i64))
            });
            let group = rule.map(|rule| (key, rule));
            wanted.push(Wanted { handler, undecided: self.random.one_in(20), group, delay });
        }
        wanted
    }

    pub(super) async fn deliver(&mut self) {
        let delivery = self.any_delivery();
        let handlers = self.any_wanted(&delivery);
        self.note(format!("deliver {delivery:?} for {handlers:?}"));
        let (accept, expected) = self.expect(&delivery, &handlers);
        let Some(answer) = self.ask(self.store.intake.accept(accept)).await else { return };
        let answer = answer.unwrap();
        assert_eq!(answer, expected, "the answer to {delivery:?}");
        self.saw_answer(&answer);
        self.memory.ledger.accepted(&delivery, &answer, self.clock.now().0);
        compare::id(&self.store, &mut self.memory.model, delivery.source, &delivery.id).await;
    }

    /// Delivers the same event several times concurrently: exactly one delivery creates it.
    pub(super) async fn deliver_at_once(&mut self) {
        let first = self.any_delivery();
        let handlers = self.any_wanted(&first);
        self.note(format!("deliver at once {first:?} for {handlers:?}"));
        let (mut accepts, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..2 + self.random.below(5) {
            let (accept, answer) = self.expect(&first, &handlers);
            let store = self.store.clone();
            accepts.push(tokio::spawn(async move { store.intake.accept(accept).await.unwrap() }));
            expected.push(answer);
        }
        let mut answers = Vec::new();
        for accept in accepts {
            answers.push(accept.await.unwrap());
        }
        // Any of the deliveries may be the first.
        let created = |answer: &Accepted| !matches!(answer, Accepted::Created { .. });
        answers.sort_by_key(created);
        assert_eq!(answers, expected, "the answers to {first:?}");
        self.saw("made at once", u64::from(!created(&answers[0])));
        for answer in &answers {
            self.memory.ledger.accepted(&first, answer, self.clock.now().0);
        }
        compare::id(&self.store, &mut self.memory.model, first.source, &first.id).await;
    }

    pub(super) fn deliver_refused(&mut self) {
        let genuine = self.any_delivery();
        let now = self.clock.now();
        let (sent, reason) = deliveries::refused(&mut self.random, &self.keys, &genuine, now);
        self.note(format!("refuse {genuine:?}: {reason}"));
        let rejection = sent.verify(&self.keys, genuine.source, now).unwrap_err();
        assert_eq!((rejection.reason, rejection.malformed), (reason, false), "{rejection}");
        self.saw("refused", 1);
        self.refused.push((genuine.source, reason));
        self.store.intake.quarantine(FailedDelivery {
            source: genuine.source.parse().unwrap(),
            scheme: self.keys.scheme(genuine.source),
            received_at: now,
            address: None,
            reason,
            detail: rejection.detail,
            path: format!("/{}", genuine.source),
            headers: self.keys.evidence(genuine.source, &sent.headers),
            body_bytes: sent.body.len() as u64,
            body: Some(sent.body),
        });
    }
}

fn new_job(wanted: &Wanted) -> NewJob {
    let millis = |millis: i64| Duration::from_millis(millis as u64);
    NewJob {
        handler: wanted.handler.parse().unwrap(),
        undecided: wanted.undecided.then(|| "undecided".to_owned()),
        group: wanted
            .group
            .as_ref()
            .map(|(key, rule)| Group { key: GroupKey::kept(key.clone()), rule: *rule }),
        delay: wanted.delay.map(|(wait, most)| Delay { wait: millis(wait), most: millis(most) }),
    }
}
