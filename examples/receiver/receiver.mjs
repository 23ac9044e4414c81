// A receiver of webhooks in Node.js 20: `WEBHOOK_SECRET=whsec_... node receiver.mjs PORT INBOX_FILE`.
//
// It verifies each request with the public Standard Webhooks library (`npm install standardwebhooks`), appends the event to
// an inbox file, and answers 2xx only when that is on disk. The work itself happens afterwards, from the inbox: "received"
// and "processed" are two things. It listens on loopback; put a TLS proxy in front of it.

import { closeSync, existsSync, fsyncSync, openSync, readFileSync, writeSync } from 'node:fs';
import { createServer } from 'node:http';

import { Webhook, WebhookVerificationError } from 'standardwebhooks';

const MAX_BODY = 1 << 20;
const [port, inboxFile] = process.argv.slice(2);
const webhook = new Webhook(process.env.WEBHOOK_SECRET);

// One line for each event. A line that a crash has cut off is no event: its sender got no answer and comes again.
const known = new Set();
if (existsSync(inboxFile)) {
  for (const line of readFileSync(inboxFile, 'utf8').split('\n')) {
    try {
      known.add(JSON.parse(line).id);
    } catch {
      // The cut-off line, or the end.
    }
  }
}
const inbox = openSync(inboxFile, 'a');

function store(id, body) {
  if (known.has(id)) {
    return false;
  }
  writeSync(inbox, `\n${JSON.stringify({ id, body })}`);
  fsyncSync(inbox);
  known.add(id);
  return true;
}

function take(request, body) {
  try {
    // The exact bytes: parsing and printing the JSON again would break the signature.
    webhook.verify(body, request.headers);
  } catch (error) {
    return [error instanceof WebhookVerificationError ? 401 : 400];
  }
  if (request.headers['content-type'] === 'application/webhook-challenge+json') {
    // Not an event: the sender asks whether this URL is ours.
    return [200, request.headers['webhook-challenge']];
  }
  const id = request.headers['webhook-id'];
  try {
    // A duplicate is a normal thing and as welcome as the first one.
    console.log(store(id, body) ? 'accepted' : 'duplicate', id);
  } catch {
    // Our own trouble: the sender will try again.
    return [503];
  }
  return [204];
}

const server = createServer((request, response) => {
  const parts = [];
  let size = 0;
  request.on('data', (part) => {
    size += part.length;
    if (size <= MAX_BODY) {
      parts.push(part);
    }
  });
  request.on('end', () => {
    const [status, text = ''] = size > MAX_BODY ? [413] : take(request, Buffer.concat(parts).toString('utf8'));
    response.writeHead(status, status === 204 ? {} : { 'content-type': 'text/plain' }).end(text);
  });
});
server.listen(Number(port), '127.0.0.1', () => console.log(`listening on http://127.0.0.1:${server.address().port}/`));
process.on('exit', () => closeSync(inbox));
