//! What a database holds, in a form that two databases can be compared by. Looks into private tables, because that
//! is what a dump has to keep; refuses to know what any of it means.

use std::collections::BTreeMap;

use webhook_outbox_test::outbox::Outbox;

/// Tables whose rows a dump keeps. `_seal_key` has its own check: every copy adds a key of its own.
pub const DUMPED: [&str; 14] = [
    "_event",
    "_event_version",
    "_feed",
    "_delivery",
    "_attempt",
    "_excerpt",
    "_idempotency",
    "_fenced",
    "_endpoint",
    "_endpoint_state",
    "_endpoint_revision",
    "_secret",
    "_event_type",
    "_conversion",
];

/// Tables whose rows it leaves out.
pub const LEFT_OUT: [&str; 3] = ["_due", "_ledger", "_request"];

/// Rows by table, each with the partition it lies in.
pub type Rows = BTreeMap<&'static str, Vec<String>>;

/// The rows of every dumped table in a fixed order.
pub fn rows(outbox: &mut Outbox) -> Rows {
    let of_table = |table: &&'static str| (*table, rows_of(outbox, table));
    DUMPED.iter().map(of_table).collect()
}

/// The rows of one table in a fixed order.
pub fn rows_of(outbox: &mut Outbox, table: &str) -> Vec<String> {
    let mut rows = outbox.column(&format!(
        "select t.tableoid::regclass || ' ' || t::text from webhook.{table} as t"
    ));
    rows.sort_unstable();
    rows
}

/// Every relation of the schema: columns, partition bound, options, indexes, constraints, comments, who may do
/// what, and whether it belongs to the extension. Then the functions and the schema itself, for their rights.
pub fn shape(outbox: &mut Outbox) -> Vec<String> {
    let mut all = outbox.column(RELATIONS);
    all.extend(outbox.column(RIGHTS));
    all
}

/// The order of grants in an ACL means nothing, and no ACL means that of the owner alone.
const RELATIONS: &str = "
    select concat_ws(E'\\n',
             c.oid::regclass, c.relkind, c.relowner::regrole, c.reloptions, i.inhparent::regclass,
             pg_get_expr(c.relpartbound, c.oid), obj_description(c.oid, 'pg_class'),
             case when exists (select from pg_depend d
                                where d.objid = c.oid and d.classid = 'pg_class'::regclass and d.deptype = 'e')
               then 'member of the extension' end,
             (select string_agg(a::text, ' ' order by a::text)
                from unnest(coalesce(c.relacl, acldefault('r', c.relowner))) as a),
             (select string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
                                          a.attcollation::regcollation, pg_get_expr(d.adbin, d.adrelid),
                                          a.attacl, col_description(c.oid, a.attnum)), E'\\n' order by a.attnum)
                from pg_attribute a
                left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
               where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
             (select string_agg(concat_ws(' ', pg_get_indexdef(x.indexrelid), obj_description(x.indexrelid, 'pg_class')),
                                E'\\n' order by x.indexrelid::regclass::text)
                from pg_index x
               where x.indrelid = c.oid),
             (select string_agg(concat_ws(' ', k.conname, pg_get_constraintdef(k.oid)), E'\\n' order by k.conname)
                from pg_constraint k
               where k.conrelid = c.oid))
      from pg_class c
      left join pg_inherits i on i.inhrelid = c.oid
     where c.relnamespace = 'webhook'::regnamespace
       and c.relkind in ('r', 'p', 'v', 'S')
     order by c.relname";

const RIGHTS: &str = "
    select format('%s: %s', o.name,
             (select string_agg(a::text, ' ' order by a::text) from unnest(o.acl) as a))
      from (select p.oid::regprocedure::text, coalesce(p.proacl, acldefault('f', p.proowner))
              from pg_proc p
             where p.pronamespace = 'webhook'::regnamespace
            union all
            select n.nspname, coalesce(n.nspacl, acldefault('n', n.nspowner))
              from pg_namespace n
             where n.nspname = 'webhook') as o (name, acl)
     order by o.name";
