-- Who has a kind of right that needs more now gets that by grant_access afterwards (docs/lifecycle.md): what a script
-- of the extension grants counts as the extension's own, which pg_dump leaves out and which keeps roles from being dropped.

-- The leader, which waited for this version, looks again when this transaction commits.
select webhook._wake();
