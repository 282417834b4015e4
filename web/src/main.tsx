import './start.ts'; // and so what both use is in its file, which is read first
import { render } from 'preact';
import { followLogOut } from './api/client.ts';
import { startLive } from './api/live.ts';
import { App } from './app.tsx';
import { startRouter } from './lib/route.ts';
import { startTheme } from './ui/theme.tsx';

const LIVE_AFTER_MS = 200;

startTheme();
startRouter();
followLogOut();
render(<App />, document.getElementById('app')!);
// The stream's worker takes time of the processor which what is drawn first needs.
setTimeout(startLive, LIVE_AFTER_MS);
