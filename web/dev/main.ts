// npm run dev: the dashboard's built page (or, behind `vite`, its sources) over canned data.
import { parseArgs } from 'node:util';
import { DevServer } from './server.ts';

const { values } = parseArgs({
  options: {
    port: { type: 'string', default: '7670' },
    jobs: { type: 'string', default: '10000' },
    pages: { type: 'string', default: new URL('../../build/web', import.meta.url).pathname },
    token: { type: 'string', default: '' },
    every: { type: 'string', default: '1000' },
  },
});
const server = new DevServer({
  port: Number(values.port),
  pages: values.pages,
  jobs: Number(values.jobs),
  token: values.token,
  everyMs: Number(values.every),
});
console.log(`canned imgd on ${await server.listen()}`);
