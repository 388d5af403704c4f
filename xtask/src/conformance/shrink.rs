//! Shrinks a session that differs.

use anyhow::Result;

/// Drops steps, fewer and fewer at once, while `find` finds the difference in what is left. The
/// last step of a session, which `last` reads from the difference, is the one that differs.
pub fn shrink<Step: Clone, Difference>(
    mut session: Vec<Step>,
    mut difference: Difference,
    last: fn(&Difference) -> usize,
    tries_max: usize,
    mut find: impl FnMut(&[Step], &Difference) -> Result<Option<Difference>>,
) -> Result<(Vec<Step>, Difference)> {
    session.truncate(last(&difference) + 1);
    let (mut size, mut tries) = (session.len() / 2, 0);
    while size > 0 && tries < tries_max {
        let mut start = 0;
        while start + 1 < session.len() && tries < tries_max {
            let end = (start + size).min(session.len() - 1);
            let mut fewer = session.clone();
            fewer.drain(start..end);
            tries += 1;
            match find(&fewer, &difference)? {
                Some(same) => {
                    fewer.truncate(last(&same) + 1);
                    (session, difference) = (fewer, same);
                }
                None => start = end,
            }
        }
        size /= 2;
    }
    Ok((session, difference))
}
