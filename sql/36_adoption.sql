-- Whose events somebody may ask for: those of this database, and of the origins that it has adopted.

create view webhook._admitted_origin as
select distinct a.origin
  from webhook._adoption a
  -- Not before it is done: a delivery that is asked for would make the leader believe that the origin had read the
  -- event, and the event's other deliveries would never be made.
  join webhook._adoption_progress p on p.request_id = a.request_id
 where a.adopter = (select webhook._origin())
   and p.state = 'done';
comment on view webhook._admitted_origin is 'Origins that this database has adopted, and is done with.';
comment on column webhook._admitted_origin.origin is 'The origin.';

create view webhook._foreign_origin as
select o.origin
  from (select k.origin
          from webhook._seal_key k
        union
        select e.origin
          from webhook._endpoint e) as o
 where o.origin <> (select webhook._origin())
   and not exists (select from webhook._adoption a
                    where a.origin = o.origin
                      and a.adopter = (select webhook._origin()));
comment on view webhook._foreign_origin is 'Origins that came with a copy and that nobody adopted here.';
comment on column webhook._foreign_origin.origin is 'The origin.';

create function webhook._admits(
  origin bigint -- origin of an event
) returns boolean
language sql stable parallel safe
set search_path = pg_catalog, webhook, pg_temp
as $$
  select origin = webhook._origin()
      or exists (select from webhook._admitted_origin a where a.origin = _admits.origin)
$$;
comment on function webhook._admits(bigint) is 'Whether events of an origin may be sent from here.';
