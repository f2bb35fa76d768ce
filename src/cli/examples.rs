//! Examples at the end of each command's help: two or more, each of which the command line takes.
//!
//! Lines have at most 78 columns, so that no terminal wraps what is to be copied.

/// Examples of `karoo`.
pub const KAROO: &str = "\
Examples:
  A capture of a simulated digitiser, channelised, on any machine:
    karoo dsim --output digitisers.pcap
    karoo replay digitisers.pcap --output spectra.pcap --report report \\
      --gain auto
  What this host lacks for a live engine:
    karoo tune check

Every command has examples: karoo COMMAND --help. Its page of the manual is karoo-COMMAND(1).
RUST_LOG in the environment says what is logged (debug; info,dpdk=debug), and
NO_COLOR that nothing is coloured.";

/// Examples of `karoo fgpu`.
pub const FGPU: &str = "\
Examples:
  An engine of MeerKAT's L band that receives and sends through one interface:
    karoo fgpu --recv-interface eth0 --send-interface eth0 --backend cuda \\
      --adc-sample-rate 1712M --sync-time 1763700000 \\
      --feng-id 3 --array-size 64 --prometheus-port 9100 \\
      --wideband name=wideband,channels=4096,dst=239.10.0.0+63 \\
      239.102.0.64+7:7148,239.102.1.64+7:7148
  Which thread of an engine would run where; nothing starts:
    karoo fgpu --config /etc/karoo/m003h.toml --print-plan";

/// Examples of `karoo doctor`.
pub const DOCTOR: &str = "\
Examples:
  Does anything come for these groups?
    karoo doctor --recv-interface eth0 239.102.0.64+7:7148,239.102.1.64+7:7148
  All options of an engine that hears nothing, with fgpu made doctor:
    karoo doctor --recv-interface eth0 --send-interface eth0 \\
      --adc-sample-rate 1712M --sync-time 1763700000 \\
      --wideband name=wideband,channels=4096,dst=239.10.0.0+63 \\
      239.102.0.64+7:7148,239.102.1.64+7:7148

Every other option of karoo fgpu is taken, and makes no difference.";

/// Examples of `karoo shadow`.
pub const SHADOW: &str = "\
Examples:
  Beside an engine, with its own command line: eth1 is where its output comes
    karoo shadow m003h:7147 --recv-interface eth0 --send-interface eth1 \\
      --adc-sample-rate 1712M --sync-time 1763700000 \\
      --feng-id 3 --array-size 64 \\
      --wideband name=wideband,channels=4096,dst=239.10.0.0+63 \\
      239.102.0.64+7:7148,239.102.1.64+7:7148
  For an hour, with what was found as JSON; the options are in a file:
    karoo shadow m003h:7147 --config m003h.toml --duration 1h --json";

/// Examples of `karoo replay`.
pub const REPLAY: &str = "\
Examples:
  4096 channels of a capture, with a report to look at:
    karoo replay digitisers.pcap --output spectra.pcap --report report \\
      --wideband name=wideband,channels=4096,dst=239.10.0.0+7 --gain auto
  53.5 MHz around 284 MHz, of samples of 8 bits:
    karoo replay digitisers.pcap -o zoom.pcap --dig-sample-bits 8 \\
      --narrowband 'name=zoom, channels=1024, dst=239.11.0.0+7,
        centre_frequency=284M, decimation=16' --gain auto";

/// Examples of `karoo dsim`.
pub const DSIM: &str = "\
Examples:
  A capture with a tone in noise in either polarisation, and 1 % of heaps lost:
    karoo dsim --output digitisers.pcap --faults drop=0.01 \\
      --signals 'cw(0.2, 232e6) + wgn(0.05); cw(0.1, 381e6) + wgn(0.05);'
  A digitiser that sends in real time until it is told to end:
    karoo dsim --interface eth0 --adc-sample-rate 1712M \\
      239.102.0.64+7:7148 239.102.1.64+7:7148

Functions of signals, in full scales, hertz and samples; `;` ends a signal:
  cw(amplitude, frequency)               a tone
  multicw(n, a, da, f, df)               n tones in even steps of a and f
  comb(amplitude, frequency)             an impulse at each period
  wgn(deviation[, seed])                 noise
  delay(signal, samples)                 the signal later
  nodither(signal)                       the whole without dither
  NAME = signal;  + - * ( )              variables and arithmetic";

/// Examples of `karoo sink`.
pub const SINK: &str = "\
Examples:
  Spectra of a capture as arrays and pictures, over frequency:
    karoo sink spectra.pcap --output-dir spectra --adc-sample-rate 1712M
  Ten seconds of a live stream, held against the signals of the digitiser, which
  karoo dsim sends with --dither-seed 1:
    karoo sink --interface eth0 --duration 10 --adc-sample-rate 1712M \\
      --wideband name=wideband,channels=4096,dst=239.10.0.0+7 \\
      --signals 'cw(0.2, 232e6); cw(0.1, 381e6);'";

/// Examples of `karoo qualify`.
pub const QUALIFY: &str = "\
Examples:
  All requirements, with a report to show:
    karoo qualify --report qualification
  Channels of an output of one's own, computed by the GPU:
    karoo qualify --backend cuda --only channelisation,channel-shape \\
      --wideband name=wideband,channels=4096,dst=239.10.0.0+7
  An engine that runs and is not in use, by its KATCP server:
    karoo qualify --live m003h:7147";

/// Examples of `karoo top`.
pub const TOP: &str = "\
Examples:
  Two engines, until q is pressed:
    karoo top m000h:9100 m001h:9100
  For scripts:
    karoo top --once m000h:9100 || echo 'look at m000h'";

/// Examples of `karoo modem tx`.
pub const MODEM_TX: &str = "\
Examples:
  A text as frames of 256-QAM, in a file of complex floats:
    karoo modem tx --input book.txt --mod qam256 --output book.cf32
  The same for a radio of 16 bits, sent a fifth of the time, as SigMF:
    karoo modem tx --input book.txt --mod qam256 --duty 0.2 --format ci16 \\
      --sample-rate 40M --output book.sigmf-meta
  By a dataflow graph that makes frames on three threads:
    karoo modem tx --input book.txt --output book.cf32 --graph --threads 3
  In packets of VITA 49.2 to a group, two million samples a second:
    karoo modem tx --input book.txt --output udp:239.1.2.3:4991 --sample-rate 2M";

/// Examples of `karoo modem rx`.
pub const MODEM_RX: &str = "\
Examples:
  What was sent, with a page that shows how well it came through:
    karoo modem rx --input air.cf32 --output book.txt --report book-report
  Frames of the original's demo, of 16-bit samples, as JSON:
    karoo modem rx --input demo.ci16 --check pad --scramble --output text --json
  As the original does it, whose figures can be had again:
    karoo modem rx --input air.cf32 --output book.txt \\
      --acquisition original --equaliser lms --vote majority
  Packets of VITA 49.2 through a DPDK port, for an hour:
    karoo modem rx --input dpdk:eth1:239.1.2.3:4991 --output text --seconds 3600
  By a dataflow graph, with as many threads as its placement gives it:
    karoo modem rx --input air.cf32 --output book.txt --graph
  In a pipe, with an equaliser for long echoes:
    cat air.cf32 | karoo modem rx --input - --taps 64 --output - | less";

/// Examples of `karoo modem channel`.
pub const MODEM_CHANNEL: &str = "\
Examples:
  Noise, a carrier that is 20 kHz off, and a clock that is 20 ppm off:
    karoo modem channel --input book.cf32 --output air.cf32 --es-n0 20 \\
      --sample-rate 80M --frequency 20e3 --clock 20
  Echoes, and a converter of 12 bits:
    karoo modem channel --input book.cf32 --output air.ci16 \\
      --profile cost207RAx4 --bits 12";

/// Examples of `karoo modem link`.
pub const MODEM_LINK: &str = "\
Examples:
  What is typed, over noise, at a million samples a second:
    karoo modem link --input - --es-n0 15
  A file again and again, with a page that shows how it comes through:
    karoo modem link --input book.txt --repeat 1000 --output got.txt \\
      --http 8000 --mod qam16 --es-n0 25 --frequency 2k --clock 10";

/// Examples of `karoo modem ber`.
pub const MODEM_BER: &str = "\
Examples:
  All of the original's modulations, 20 kHz and 20 ppm off, with a picture:
    karoo modem ber --frequency 20k --clock 20 --svg rates.svg
  The loss where theory has 1e-3 and 1e-5, as a page:
    karoo modem ber --rates 1e-3,1e-5 --errors 400 --report rates
  16-QAM in echoes, with a longer equaliser and more certainty:
    karoo modem ber --mod qam16 --eb-n0 14,18 --profile cost207RAx4 \\
      --taps 64 --errors 1000 --json
  256-QAM behind a mixer whose branches differ, mended:
    karoo modem ber --mod qam256 --frequency 20k --iq-gain 1 --iq-phase 5 \\
      --dc 0.05,0 --correct";

/// Examples of `karoo modem bench tx`.
pub const MODEM_BENCH_TX: &str = "\
Examples:
  Every modulation on one core:
    karoo modem bench tx --mod bpsk,qpsk,qam16,qam64,qam256
  256-QAM on one and on four cores, by duty cycle, as JSON:
    karoo modem bench tx --threads 1,4 --duty 0.05,0.8,1 --json";

/// Examples of `karoo modem bench rx`.
pub const MODEM_BENCH_RX: &str = "\
Examples:
  Every modulation on one core:
    karoo modem bench rx --mod bpsk,qpsk,qam16,qam64,qam256
  256-QAM with up to seven threads that decode:
    karoo modem bench rx --threads 0,1,3,7
  One and two receivers on the two threads of a core, by block:
    karoo modem bench rx --instances 1,2 --cpus 2,34 --block 120,4096";

/// Examples of `karoo modem bench latency`.
pub const MODEM_BENCH_LATENCY: &str = "\
Examples:
  256-QAM at 80 Msample/s, in blocks of two sizes, on one thread and on two:
    karoo modem bench latency
  16-QAM at the rate of a radio by USB, as JSON:
    karoo modem bench latency --mod qam16 --rate 40M --threads 0 --json";

/// Examples of `karoo modem bench loop`.
pub const MODEM_BENCH_LOOP: &str = "\
Examples:
  256-QAM for three minutes, without and with telemetry:
    karoo modem bench loop --seconds 180 --telemetry
  The share of each CPU at 20 Msample/s, by duty cycle:
    karoo modem bench loop --rate 20M --duty 0.05,0.8,1
  All kinds of queues:
    karoo modem bench loop --transfer in-place,copying,marked,marked-copying";

/// Examples of `karoo plan`.
pub const PLAN: &str = "\
Examples:
  Four engines on this host, drawn:
    karoo plan --engines 4 --picture plan.svg
  Two engines on a host whose proc and sys were copied to a folder:
    karoo plan --engines 2 --recv-interface eth2,eth3 --root m000h";

/// Examples of `karoo tune check`.
pub const TUNE_CHECK: &str = "\
Examples:
  What this host lacks, and why it matters:
    karoo tune check --explain
  The whole appliance, firmware included, for one interface:
    karoo tune check appliance --interface eth2";

/// Examples of `karoo tune apply`.
pub const TUNE_APPLY: &str = "\
Examples:
  What would be changed:
    karoo tune apply --dry-run
  All of it, without being asked; root only:
    sudo karoo tune apply --yes";

/// Examples of `karoo tune revert`.
pub const TUNE_REVERT: &str = "\
Examples:
  Everything as it was before the first apply; root only:
    sudo karoo tune revert
  The same where the journal is elsewhere:
    sudo karoo tune revert --state /srv/karoo/tuning";

/// Examples of `karoo bench engine`.
pub const BENCH_ENGINE: &str = "\
Examples:
  One engine at the rate of MeerKAT's L band:
    karoo bench engine --rate 1.712
  The same of S band, as MeerKAT's controller starts it: one rx lcore:
    karoo bench engine --preset one-rx-lcore --backend cuda
  The highest rate of an engine on the CPU without loss:
    karoo bench engine --backend cpu --workers 8 --rate 2 --search
  What 16 open pages and ten scrapes a second cost at 80 % of a GPU:
    karoo bench engine --rate 14 --search --viewers 16 --scrapes 10";

/// Examples of `karoo bench kernels`.
pub const BENCH_KERNELS: &str = "\
Examples:
  The usual channels, each with the fastest kernels:
    karoo bench kernels --tune auto
  A wideband and a narrowband output together, as JSON:
    karoo bench kernels --channels 4096 --decimation 1,8 --together --json";

/// Examples of `karoo bench ports`.
pub const BENCH_PORTS: &str = "\
Examples:
  The highest rate without loss between two ports of one cable:
    karoo bench ports --send-interface eth2 --recv-interface eth3
  One trial of ten seconds at 40 Gb/s:
    karoo bench ports --send-interface eth2 --recv-interface eth3 \\
      --search none --rate 40 --seconds 10";

/// Examples of `karoo bench cores`.
pub const BENCH_CORES: &str = "\
Examples:
  Figures that karoo plan and karoo fgpu then use; root only:
    sudo karoo bench cores --output /var/lib/karoo/cores.json
  Between four CPUs, to look at:
    karoo bench cores --cpus 0-3";

/// Examples of `karoo man`.
pub const MAN: &str = "\
Examples:
  The pages of this program, and one of them:
    karoo man man1
    man man1/karoo-replay.1
  Where man looks for them by itself:
    karoo man ~/.local/share/man/man1";

/// Examples of `karoo completions`.
pub const COMPLETIONS: &str = "\
Examples:
  For this user's shells from now on:
    karoo completions bash > ~/.local/share/bash-completion/completions/karoo
    karoo completions fish > ~/.config/fish/completions/karoo.fish
  In a folder of $fpath:
    karoo completions zsh > _karoo";

/// Examples of `karoo schema`.
pub const SCHEMA: &str = "\
Examples:
  Which documents there are:
    karoo schema
  The schema of a replay's report, to check one with:
    karoo schema replay-report";

/// Examples of `karoo flow check`.
pub const FLOW_CHECK: &str = "\
Examples:
  What is in a graph, how fast it can be, and a picture of its partitions:
    karoo flow check receiver.toml --svg receiver.svg
  Loops that lack initial blocks for 1 µs a block of 128 ticks, as JSON:
    karoo flow check receiver.graphml --block 128 --period 1000 --json";

/// Examples of `karoo flow plan`.
pub const FLOW_PLAN: &str = "\
Examples:
  The best placement on four CPUs, kept for karoo flow run:
    karoo flow plan receiver.toml --cpus 2-5 --output receiver.plan
  The same, drawn, with one filter where it has to be:
    karoo flow plan radio.toml --cpus 2-5 --pin front/filter=2 --svg > a.svg";

/// Examples of `karoo flow run`.
pub const FLOW_RUN: &str = "\
Examples:
  Complex samples of a file, filtered into another:
    karoo flow run filter.toml --input x=capture.cf32 --output y=filtered.cf32
  From a radio by TCP to whoever listens, as planned, with a live page:
    karoo flow run receiver.toml --plan receiver.plan --http 8080 \\
      --input x=tcp:radio:4000 --output bits=udp:127.0.0.1:5000
  Two ports of a program that Laminar made, in blocks of 120 samples:
    karoo flow run receiver.graphml --input iq,on=shm:radio,planar=120
  In a pipe:
    zcat x.gz | karoo flow run filter.toml -i - -o - | aplay";

/// Examples of `karoo flow bench`.
pub const FLOW_BENCH: &str = "\
Examples:
  How near the expected rates of some graphs are:
    karoo flow bench graph --cpus 2,3 graphs/*.toml
  The same with new costs, as JSON:
    karoo flow bench graph --measure --json receiver.toml";

/// Examples of `karoo flow bench queues`.
pub const FLOW_BENCH_QUEUES: &str = "\
Examples:
  What blocks of some sizes take from CPU 2 to CPU 3:
    karoo flow bench queues --cpus 2,3 --bytes 64,4096
  What four pairs pass at once, and the first of them alone:
    karoo flow bench queues --pairs 0:4,1:5,2:6,3:7 --bytes 4096
  All sizes between the first two CPUs, the least of 20 measurements, as JSON:
    karoo flow bench queues --rounds 20 --json";

/// Examples of `karoo flow bench chain`.
pub const FLOW_BENCH_CHAIN: &str = "\
Examples:
  4 and 12 kernels on four CPUs, as JSON:
    karoo flow bench chain --cpus 2-5 --kernels 4,12 --json
  One, two, three and six kernels for each CPU:
    karoo flow bench chain";
