/*
 * Sends an SD card COUNT failing commands, and prints how many failed: mmc_errors DEVICE COUNT unknown|beyond. unknown: commands that the
 * card does not support and does not respond to. beyond: reads beyond its end, which its status reports.
 */
#include <fcntl.h>
#include <linux/mmc/ioctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/* Reserved for the card's manufacturer. */
#define UNKNOWN 60
#define READ_SINGLE_BLOCK 17
/* MMC_RSP_R1 (include/linux/mmc/core.h): a response, its CRC and its index. */
#define ANSWERED 0x15
/* R1_OUT_OF_RANGE, R1_ADDRESS_ERROR (include/linux/mmc/mmc.h). */
#define BEYOND (1u << 31 | 1u << 30)

int main(int argc, char **argv)
{
	int device = argc == 4 ? open(argv[1], O_RDWR) : -1, failed = 0;

	if (device < 0) {
		perror("mmc_errors DEVICE COUNT unknown|beyond");
		return 1;
	}
	for (int i = 0; i < atoi(argv[2]); i++) {
		struct mmc_ioc_cmd command;
		int beyond = strcmp(argv[3], "beyond") == 0, refused;

		memset(&command, 0, sizeof(command));
		command.opcode = beyond ? READ_SINGLE_BLOCK : UNKNOWN;
		/* The last block that 32 bits can address in bytes. */
		command.arg = beyond ? 0xfffffe00 : 0;
		command.flags = ANSWERED;
		refused = ioctl(device, MMC_IOC_CMD, &command) != 0;
		failed += beyond ? !refused && (command.response[0] & BEYOND) != 0 : refused;
	}
	printf("%d\n", failed);
	return 0;
}
