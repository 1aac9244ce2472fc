// Eight hosts send to one through one switch, as DCTCP flows: the bench's scenario in ns-3.
//
//   incast BYTES
//
// Prints a line for each flow with its completion time in milliseconds, then the packets that left the
// bottleneck's queue and how many of them it marked. Links, packets, marking and buffer are those of
// incast.yaml beside this file.

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace ns3;

namespace
{

constexpr uint32_t SENDERS = 8;
constexpr uint32_t MTU = 4200;
constexpr uint32_t SEGMENT = MTU - 20 - 20 - 12; // IP, TCP, timestamps

uint64_t g_bytes;
uint32_t g_open = SENDERS;
std::vector<uint64_t> g_received(SENDERS);
std::vector<double> g_endMs(SENDERS);

void
Received(uint32_t flow, Ptr<const Packet> packet, const Address&)
{
    g_received[flow] += packet->GetSize();
    if (g_received[flow] < g_bytes)
    {
        return;
    }
    g_endMs[flow] = Simulator::Now().GetNanoSeconds() / 1e6;
    if (--g_open == 0)
    {
        Simulator::Stop();
    }
}

void
SetDefaults()
{
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpDctcp::GetTypeId()));
    Config::SetDefault("ns3::TcpSocketBase::UseEcn", StringValue("On"));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(1)));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(SEGMENT));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(64 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(64 << 20));
    Config::SetDefault("ns3::RedQueueDisc::UseEcn", BooleanValue(true));
    Config::SetDefault("ns3::RedQueueDisc::UseHardDrop", BooleanValue(false));
    Config::SetDefault("ns3::RedQueueDisc::Gentle", BooleanValue(false));
    Config::SetDefault("ns3::RedQueueDisc::QW", DoubleValue(1.0)); // the queue as it is, no average
    Config::SetDefault("ns3::RedQueueDisc::LInterm", DoubleValue(5)); // 1 / P_max
    Config::SetDefault("ns3::RedQueueDisc::MinTh", DoubleValue(100e3));
    Config::SetDefault("ns3::RedQueueDisc::MaxTh", DoubleValue(400e3));
    Config::SetDefault("ns3::RedQueueDisc::MeanPktSize", UintegerValue(MTU));
    Config::SetDefault("ns3::RedQueueDisc::MaxSize", QueueSizeValue(QueueSize("8000000B")));
}

} // namespace

int
main(int argc, char* argv[])
{
    if (argc != 2 || (g_bytes = std::strtoull(argv[1], nullptr, 10)) == 0)
    {
        std::fprintf(stderr, "usage: incast BYTES\n");
        return 2;
    }
    SetDefaults();
    NodeContainer hosts(SENDERS + 1);
    Ptr<Node> leaf = CreateObject<Node>();
    InternetStackHelper internet;
    internet.Install(hosts);
    internet.Install(leaf);

    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue("100Gbps"));
    link.SetDeviceAttribute("Mtu", UintegerValue(MTU));
    link.SetChannelAttribute("Delay", StringValue("1us"));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p")); // what waits, waits in the disc
    TrafficControlHelper marking;
    marking.SetRootQueueDisc("ns3::RedQueueDisc", "LinkBandwidth", StringValue("100Gbps"), "LinkDelay", StringValue("1us"));
    TrafficControlHelper plain;
    plain.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", StringValue("100000p"));

    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    Ipv4Address receiver;
    Ptr<QueueDisc> bottleneck;
    for (uint32_t number = 0; number <= SENDERS; ++number)
    {
        NetDeviceContainer ends = link.Install(leaf, hosts.Get(number));
        QueueDiscContainer queues = marking.Install(ends.Get(0));
        plain.Install(ends.Get(1));
        receiver = addresses.Assign(ends).GetAddress(1);
        bottleneck = queues.Get(0);
        addresses.NewNetwork();
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    for (uint32_t flow = 0; flow < SENDERS; ++flow)
    {
        InetSocketAddress to(receiver, 5000 + flow);
        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 5000 + flow));
        sink.Install(hosts.Get(SENDERS)).Get(0)->TraceConnectWithoutContext("Rx", MakeBoundCallback(&Received, flow));
        BulkSendHelper source("ns3::TcpSocketFactory", to);
        source.SetAttribute("MaxBytes", UintegerValue(g_bytes));
        source.SetAttribute("SendSize", UintegerValue(16 * SEGMENT));
        source.Install(hosts.Get(flow));
    }
    Simulator::Stop(Seconds(100));
    Simulator::Run();

    for (double end : g_endMs)
    {
        std::printf("flow %.6f\n", end);
    }
    const QueueDisc::Stats& stats = bottleneck->GetStats();
    std::printf("packets %u marked %u dropped %u\n",
                stats.nTotalDequeuedPackets,
                stats.nTotalMarkedPackets,
                stats.nTotalDroppedPackets);
    Simulator::Destroy();
    return 0;
}
