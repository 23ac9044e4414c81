-- A handler in PL/pgSQL: books paid orders. One event, one transaction: the claim, the booking and the result commit
-- together or not at all. Run it from a scheduler, `call book_orders()`, as a role with the right "handle".

create table if not exists booking (
  event_id text primary key,
  order_id text not null,
  total numeric not null
);

select webhook.create_inbox_handler('books', version => '1', event_types => '{order.paid}');

create or replace procedure book_orders()
language plpgsql as $$
declare
  event record;
  fault text;
begin
  loop
    select * into event from webhook.claim_inbox('books', version => '1');
    exit when not found;
    begin
      insert into booking (event_id, order_id, total)
      select event.event_id, event.subject_id, (b.body -> 'data' ->> 'total')::numeric
        from (select convert_from(event.body, 'UTF8')::jsonb as body) as b;
      perform webhook.finish_inbox(event.claim_id, note => 'booked');
    exception
      when data_exception or integrity_constraint_violation then
        -- The booking is rolled back to the beginning of this block; the claim is not. No value of it may be in the note.
        fault := sqlstate;
        perform webhook.finish_inbox(event.claim_id, 'rejected', 'SQLSTATE ' || fault);
    end;
    commit;
  end loop;
end
$$;
