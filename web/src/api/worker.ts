/// <reference lib="webworker" />
import { Connection } from './connection.ts';

// One stream for all tabs of this browser: HTTP/1.1 has six connections for each origin, and a stream holds one.
declare const self: SharedWorkerGlobalScope;

const ports = new Set<MessagePort>();
const tell = (message: unknown) => {
  for (const port of ports) port.postMessage(message);
};
const connection = new Connection('/api/v1/stream', {
  event: (event) => tell({ event }),
  status: (status) => tell({ status }),
});

self.onconnect = (connect) => {
  const port = connect.ports[0]!;
  port.onmessage = (message: MessageEvent<{ session?: number; retry?: boolean; bye?: boolean }>) => {
    if (message.data.bye) ports.delete(port);
    else if (message.data.retry) connection.retryNow();
    else if (message.data.session !== undefined) {
      ports.add(port);
      connection.start(message.data.session);
      port.postMessage({ status: connection.status });
    }
  };
  port.start();
};
