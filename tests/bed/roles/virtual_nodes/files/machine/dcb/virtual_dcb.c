// SPDX-License-Identifier: GPL-2.0
/*
 * virtual_dcb: stores the settings of data centre bridging for interfaces without it.
 *
 * A SIMULATION, for tests only. `dcb pfc`, `ets`, `app`, `dcbx`, `buffer` and `maxrate` set and show
 * values as on a network card; no frame is ever paused, scheduled, marked or limited by them.
 *
 *     modprobe virtual_dcb netdevs=rail0,rail1
 *
 * Settings persist while the module is loaded, also across renames, and are lost at a reboot, as on
 * network cards.
 */
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <net/dcbnl.h>

#define MOST 16
#define CLASSES IEEE_8021QAZ_MAX_TCS

static char *netdevs[MOST];
static int count;
module_param_array(netdevs, charp, &count, 0444);
MODULE_PARM_DESC(netdevs, "names of the interfaces to serve");

struct port {
	struct net_device *netdev;
	const struct dcbnl_rtnl_ops *former;
	struct ieee_ets ets;
	struct ieee_pfc pfc;
	struct ieee_maxrate maxrate;
	struct dcbnl_buffer buffer;
	u8 dcbx;
};

/* All access is under the RTNL lock: dcbnl takes it, and so do attach and detach. */
static struct port ports[MOST];

static struct port *port_of(const struct net_device *netdev)
{
	int i;

	for (i = 0; i < MOST; i++)
		if (ports[i].netdev == netdev)
			return &ports[i];
	return NULL;
}

static int get_ets(struct net_device *netdev, struct ieee_ets *ets)
{
	struct port *port = port_of(netdev);

	if (!port)
		return -ENODEV;
	*ets = port->ets;
	return 0;
}

/* As drivers of cards do: the shares of all ETS classes must add up to 100 %. */
static int set_ets(struct net_device *netdev, struct ieee_ets *ets)
{
	struct port *port = port_of(netdev);
	int i, sharing = 0, percent = 0;

	if (!port)
		return -ENODEV;
	for (i = 0; i < CLASSES; i++) {
		if (ets->prio_tc[i] >= CLASSES)
			return -EINVAL;
		if (ets->tc_tsa[i] == IEEE_8021QAZ_TSA_ETS) {
			sharing++;
			percent += ets->tc_tx_bw[i];
		}
	}
	if (sharing && percent != 100)
		return -EINVAL;
	port->ets = *ets;
	port->ets.ets_cap = CLASSES;
	return 0;
}

static int get_pfc(struct net_device *netdev, struct ieee_pfc *pfc)
{
	struct port *port = port_of(netdev);

	if (!port)
		return -ENODEV;
	*pfc = port->pfc;
	return 0;
}

/* Counters and capabilities are set by the device, not by the caller. */
static int set_pfc(struct net_device *netdev, struct ieee_pfc *pfc)
{
	struct port *port = port_of(netdev);

	if (!port)
		return -ENODEV;
	port->pfc.pfc_en = pfc->pfc_en;
	port->pfc.mbc = pfc->mbc;
	port->pfc.delay = pfc->delay;
	return 0;
}

static int get_maxrate(struct net_device *netdev, struct ieee_maxrate *maxrate)
{
	struct port *port = port_of(netdev);

	if (!port)
		return -ENODEV;
	*maxrate = port->maxrate;
	return 0;
}

static int set_maxrate(struct net_device *netdev, struct ieee_maxrate *maxrate)
{
	struct port *port = port_of(netdev);

	if (!port)
		return -ENODEV;
	port->maxrate = *maxrate;
	return 0;
}

static int get_buffer(struct net_device *netdev, struct dcbnl_buffer *buffer)
{
	struct port *port = port_of(netdev);

	if (!port)
		return -ENODEV;
	*buffer = port->buffer;
	return 0;
}

static int set_buffer(struct net_device *netdev, struct dcbnl_buffer *buffer)
{
	struct port *port = port_of(netdev);

	if (!port)
		return -ENODEV;
	port->buffer = *buffer;
	return 0;
}

static int set_app(struct net_device *netdev, struct dcb_app *app)
{
	if (app->selector == IEEE_8021QAZ_APP_SEL_DSCP && app->protocol >= 64)
		return -EINVAL;
	if (app->priority >= IEEE_8021QAZ_MAX_TCS)
		return -EINVAL;
	return dcb_ieee_setapp(netdev, app);
}

static int del_app(struct net_device *netdev, struct dcb_app *app)
{
	return dcb_ieee_delapp(netdev, app);
}

static u8 get_dcbx(struct net_device *netdev)
{
	struct port *port = port_of(netdev);

	return port ? port->dcbx : 0;
}

/* There is no agent in firmware: only the host can run DCBX. dcbnl treats 1 as a refusal. */
static u8 set_dcbx(struct net_device *netdev, u8 mode)
{
	struct port *port = port_of(netdev);

	if (!port || (mode & DCB_CAP_DCBX_LLD_MANAGED) || !(mode & DCB_CAP_DCBX_VER_IEEE))
		return 1;
	port->dcbx = mode;
	return 0;
}

static const struct dcbnl_rtnl_ops operations = {
	.ieee_getets = get_ets,
	.ieee_setets = set_ets,
	.ieee_getpfc = get_pfc,
	.ieee_setpfc = set_pfc,
	.ieee_getmaxrate = get_maxrate,
	.ieee_setmaxrate = set_maxrate,
	.ieee_setapp = set_app,
	.ieee_delapp = del_app,
	.getdcbx = get_dcbx,
	.setdcbx = set_dcbx,
	.dcbnl_getbuffer = get_buffer,
	.dcbnl_setbuffer = set_buffer,
};

static void attach(struct port *port, struct net_device *netdev)
{
	port->netdev = netdev;
	port->former = netdev->dcbnl_ops;
	port->ets.ets_cap = CLASSES;
	port->pfc.pfc_cap = CLASSES;
	port->dcbx = DCB_CAP_DCBX_HOST | DCB_CAP_DCBX_VER_IEEE;
	netdev->dcbnl_ops = &operations;
	netdev_info(netdev, "DCB settings are kept by virtual_dcb: a simulation, no frame obeys them\n");
}

static void detach(struct port *port)
{
	port->netdev->dcbnl_ops = port->former;
	dev_put(port->netdev);
	port->netdev = NULL;
}

/* The settings of a removed interface, such as a virtual function, are removed as well. */
static int on_event(struct notifier_block *block, unsigned long event, void *data)
{
	struct port *port = port_of(netdev_notifier_info_to_dev(data));

	if (port && event == NETDEV_UNREGISTER)
		detach(port);
	return NOTIFY_DONE;
}

static struct notifier_block notifier = { .notifier_call = on_event };

static int __init start(void)
{
	struct net_device *netdev;
	int i, error = register_netdevice_notifier(&notifier);

	for (i = 0; !error && i < count; i++) {
		netdev = dev_get_by_name(&init_net, netdevs[i]);
		if (!netdev) {
			pr_err("virtual_dcb: there is no interface %s\n", netdevs[i]);
			unregister_netdevice_notifier(&notifier);
			return -ENODEV;
		}
		rtnl_lock();
		attach(&ports[i], netdev);
		rtnl_unlock();
	}
	return error;
}

/* Unregistering notifies of every interface as if it were removed, which detaches all. */
static void __exit stop(void)
{
	unregister_netdevice_notifier(&notifier);
}

module_init(start);
module_exit(stop);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Simulation of DCB settings for tests: remembers them, and no frame obeys them");
