//! Counters of the meta command forms that memcached counts apart: hits of `mg` with T count as
//! touches, and those of `ma` with MD as decrements.
//!
//! Each form has cells of its own in place of its command's, except for the call, which both count.
//! The sums by command add them up again.

use super::{CommandIndex, CommandTotals, MemcachedCommand, Totals};

/// A form of a meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaForm {
    /// mg T.
    Touch,
    /// mg N.
    Make,
    /// mg N T.
    MakeAndTouch,
    /// ms C, except in mode add, append and prepend.
    Compare,
    /// md I.
    Invalidate,
    /// ma MD.
    Decrease,
    /// ma N.
    IncreaseOrMake,
    /// ma N MD.
    DecreaseOrMake,
}

impl MetaForm {
    /// In the order of their counters.
    pub const ALL: [MetaForm; 8] = [
        MetaForm::Touch,
        MetaForm::Make,
        MetaForm::MakeAndTouch,
        MetaForm::Compare,
        MetaForm::Invalidate,
        MetaForm::Decrease,
        MetaForm::IncreaseOrMake,
        MetaForm::DecreaseOrMake,
    ];

    /// How many there are.
    pub const COUNT: usize = MetaForm::ALL.len();

    /// The command of this form.
    pub fn command(self) -> MemcachedCommand {
        match self {
            MetaForm::Touch | MetaForm::Make | MetaForm::MakeAndTouch => MemcachedCommand::Mg,
            MetaForm::Compare => MemcachedCommand::Ms,
            MetaForm::Invalidate => MemcachedCommand::Md,
            MetaForm::Decrease | MetaForm::IncreaseOrMake | MetaForm::DecreaseOrMake => {
                MemcachedCommand::Ma
            }
        }
    }
}

impl Totals {
    /// The counts of a memcached command outside its forms.
    pub fn plain(&self, command: MemcachedCommand) -> CommandTotals {
        let all = self.commands[CommandIndex::memcached(command).position()];
        let forms = MetaForm::ALL.into_iter().filter(|form| form.command() == command);
        forms.fold(all, |rest, form| rest.less(self.form(form)))
    }

    /// The counts of a form of a meta command.
    pub fn form(&self, form: MetaForm) -> &CommandTotals {
        &self.forms[form as usize]
    }
}

/// Adds the counts of forms to their commands, except for calls, which are already included.
pub(super) fn add_to_commands(commands: &mut [CommandTotals], forms: &[CommandTotals]) {
    for (form, counted) in MetaForm::ALL.into_iter().zip(forms) {
        let command = &mut commands[CommandIndex::memcached(form.command()).position()];
        command.hits += counted.hits;
        command.misses += counted.misses;
        command.errors += counted.errors;
        command.not_stored += counted.not_stored;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkerCounters;

    #[test]
    fn forms_are_parts_of_their_commands() {
        let worker = WorkerCounters::new();
        let (mg, touch) = (MemcachedCommand::Mg, CommandIndex::form(MetaForm::Touch));
        worker.command(CommandIndex::memcached(mg)).calls.add(3);
        worker.command(CommandIndex::memcached(mg)).hits.add(1);
        worker.command(touch).calls.add(2);
        worker.command(touch).hits.add(1);
        worker.command(touch).misses.add(1);
        let totals = Totals::sum(std::iter::once(&worker));
        let all = totals.command(crate::Protocol::Memcached, "mg").unwrap();
        assert_eq!((all.calls, all.hits, all.misses), (3, 2, 1));
        let plain = totals.plain(mg);
        assert_eq!((plain.calls, plain.hits, plain.misses), (1, 1, 0));
        assert_eq!(totals.form(MetaForm::Touch).hits, 1);
        let after = totals.clone().since(&totals);
        assert_eq!((after.form(MetaForm::Touch).hits, after.plain(mg).hits), (0, 0));
        assert_eq!(totals.commands.iter().filter(|command| command.name == "mg").count(), 1);
    }

    #[test]
    fn forms_have_the_order_of_their_counters() {
        assert!(MetaForm::ALL.iter().enumerate().all(|(at, form)| *form as usize == at));
    }
}
