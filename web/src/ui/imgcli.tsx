import { api } from '../api/client.ts';
import { imgcliFor } from '../lib/server.ts';
import { Command } from './bits.tsx';
import { useData } from './use_data.ts';

/** A command of imgcli's to copy, which asks the imgd of this page. `of` is given how it begins. */
export function Imgcli({ of }: { of: (imgcli: string) => string }) {
  const { data: port } = useData('gRPC port', api.grpcPort);
  return <Command text={of(imgcliFor(location.hostname, port))} />;
}
