/** One event of a Server-Sent Events stream. */
export interface StreamEvent {
  id: string;
  type: string;
  data: string;
}

/** Takes a stream's text apart, in pieces as they come; as the HTML standard says, but without `retry`. */
export class SseParser {
  #rest = '';
  #id = '';
  #type = '';
  #data: string[] = [];

  /** Of the last event, also of one without data; what to go on after. */
  lastId = '';

  push(piece: string): StreamEvent[] {
    const out: StreamEvent[] = [];
    const text = this.#rest + piece;
    let from = 0;
    for (let end = text.indexOf('\n', from); end >= 0; end = text.indexOf('\n', from)) {
      const line = text.slice(from, text[end - 1] === '\r' && end > from ? end - 1 : end);
      from = end + 1;
      if (line === '') this.#finish(out);
      else this.#field(line);
    }
    this.#rest = text.slice(from);
    return out;
  }

  #finish(out: StreamEvent[]): void {
    this.lastId = this.#id;
    if (this.#data.length > 0) {
      out.push({ id: this.#id, type: this.#type || 'message', data: this.#data.join('\n') });
    }
    this.#type = '';
    this.#data = [];
  }

  #field(line: string): void {
    const colon = line.indexOf(':');
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const raw = colon < 0 ? '' : line.slice(colon + 1);
    const value = raw.startsWith(' ') ? raw.slice(1) : raw;
    if (name === 'data') this.#data.push(value);
    else if (name === 'event') this.#type = value;
    else if (name === 'id' && !value.includes('\0')) this.#id = value;
  }
}
